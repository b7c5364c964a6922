/* SPDX-License-Identifier: GPL-2.0 */
/* What the real-time policy counts, as it lies in memory. src/realtime.rs mirrors it; the loader compares the sizes with the
 * maps' own. */
#ifndef VSTEER_REALTIME_H
#define VSTEER_REALTIME_H

#include "histogram.h"

#define GROUPS_MAX 8192
#define DEPTH_MAX 16		/* of cgroups; what lies deeper belongs to the sixteenth */
#define CPUS_MAX 1024

#define VCPUS_MAX 4096		/* with timers by call at a time */

#define SOURCE_TIMER 1		/* what the guest writes to its local APIC's timer */
#define SOURCE_CALL 2		/* what it says by a hypercall */

/* The hypercall: a number that KVM does not know, and answers with an error that the guest ignores. What vsteer-vit says is vit.rs
 * of vsteer-guest. */
#define CALL_NUMBER 0x56495400ULL	/* "VIT" */
#define CALL_ARM 0		/* a timer that matters ends in (second argument) ns */
#define CALLS_FOR 1000000000ULL	/* ns after a timer that was called for ended: then who called has gone */
#define CALL_LONGEST (24ULL * 3600 * 1000000000)	/* who says more made a mistake */

#define NO_QUOTA (~0ULL)		/* as the kernel says it */
#define QUOTA_LEAST_NS 100000LL	/* of a pCPU at a time */

/* Set before loading; times in ns. */
struct settings {
	u64 slice;		/* how long a thread runs before another one may, but for what follows */
	u64 granularity;	/* for so long is nobody interrupted but for a timer */
	u64 warp;		/* how far a VM's virtual time may be ahead for it to be put first */
	u64 limit;		/* how long it may run in one go then */
	u64 pause;		/* after a warp that ran into its limit */
	u64 apart;		/* from one time that a VM is put first to the next */
	u64 apic_timer;		/* address of KVM's function that serves the end of a local APIC's timer */
	u32 honour;		/* 0: only measure */
	u32 sources;		/* bits SOURCE_* */
	u32 queues;
	u32 concurrency;	/* of a group's runnable threads so many count for its weight */
	u32 queue_of[CPUS_MAX];	/* by pCPU */
};

/* What is one for all. */
struct state {
	u64 asks;		/* numbers the ends of timers */
	s32 raised;		/* threads whose timers ended while they waited in a queue */
	s32 exit_kind;		/* why the kernel ended the policy; 0: it has not */
	u64 exit_code;
	u64 quotas;		/* groups that have one */
	char exit_reason[128];
	char exit_message[256];
};

/* Of the last while, in 2^-10. */
struct average {
	u64 value;
	u64 at;			/* ns */
};

/* One cgroup. */
struct group {
	u64 id;			/* the cgroup's, which is its folder's inode number */
	u32 parent;		/* index; 0: is the root */
	u32 weight;		/* cpu.weight, 1 to 10000 */
	u32 domain;		/* index of the group that is charged for its threads: itself, or the VM's above it */
	u32 generation;		/* of the VMs' table when `domain` was looked up */
	u32 active;		/* runnable threads, here and below; or, where groups do not weigh by them, threads here and groups below that have some */
	u32 more;		/* times that it has its weight, by them, beyond once */
	struct average threads;	/* of those */
	u64 adds;		/* to the active weight of the group above */
	u64 active_weight;	/* of groups below, and of threads of the root, that are active */
	struct average beside;	/* of that */
	u64 weights;		/* of its runnable threads together, by their nice values */
	u64 uneven;		/* how many of these do not have the ordinary one */
	u64 avt;		/* actual virtual time, ns */
	u64 warps_again;	/* not before, ns */
	u64 cpu_ns;		/* used while the policy ran */
	u64 quota;		/* ns in a period; 0: none */
	u64 burst;		/* so much of it may be kept beyond one */
	u64 period;		/* ns */
	u64 period_began;
	long long left;		/* of the quota; below 0: owed */
};

/* What one VM asked for, and got. */
struct asked {
	u64 expired;		/* timers that ended */
	u64 running;		/* of these, while the vCPU ran anyway, or owed but had the pCPU for itself */
	u64 honoured;		/* while it was blocked or waited, and it was put first */
	u64 in_debt;		/* refused: so much borrowed that it may not borrow more */
	u64 too_soon;		/* refused: too soon after the last, or in the pause after a warp that ran into its limit */
	u64 over_quota;		/* refused: its quota is used up */
	u64 calls;		/* by hypercall */
	u64 malformed;		/* calls that say nothing sensible */
	u64 limited;		/* warps that ran into their limit */
	u64 ahead_max;		/* of its virtual time, when a timer ended */
	u64 sum_ns;		/* from expiry to running */
	u64 max_ns;
	u32 late[HIST_BUCKETS];
};

#endif
