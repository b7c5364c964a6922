/* SPDX-License-Identifier: GPL-2.0 */
/* Histograms of times, with the buckets of vsteer_core::nouns::Histogram. */
#ifndef VSTEER_HISTOGRAM_H
#define VSTEER_HISTOGRAM_H

#include "kernel.h"

#define HIST_BUCKETS 192	/* vsteer_core::nouns::HISTOGRAM_BUCKETS */
#define HIST_FIRST_LOG 10	/* the first bucket ends at 2^10 ns and an eighth */

/* This and other functions that are neither static nor inline are checked once by the kernel, for any arguments,
 * instead of at every place that calls them, on each of the paths that lead there: that is most of the loading time. */
__attribute__((noinline)) u32 bucket_of(u64 ns)
{
	u64 v = ns | 1;
	u32 log = 0;

	if (v >> 32) { log += 32; v >>= 32; }
	if (v >> 16) { log += 16; v >>= 16; }
	if (v >> 8) { log += 8; v >>= 8; }
	if (v >> 4) { log += 4; v >>= 4; }
	if (v >> 2) { log += 2; v >>= 2; }
	if (v >> 1) log += 1;
	if (log < HIST_FIRST_LOG)
		return 0;
	u32 i = (log - HIST_FIRST_LOG) * 8 + ((ns >> (log - 3)) & 7);
	return i < HIST_BUCKETS ? i : HIST_BUCKETS - 1;
}

#endif
