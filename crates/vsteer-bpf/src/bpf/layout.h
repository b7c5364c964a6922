/* SPDX-License-Identifier: GPL-2.0 */
/* What the observer counts, as it lies in memory. src/layout.rs mirrors it; the loader compares the sizes with the maps' own. */
#ifndef VSTEER_LAYOUT_H
#define VSTEER_LAYOUT_H

#include "histogram.h"

/* Per pCPU, what user space has not read yet: 4096 switches are 128 KiB, and 0.2 s at 20,000 switches a second. */
#define RUNNERS 4096
#define WAITS 2048
#define EVENTS_PER_BATCH 256

/* At any instant a thread is in exactly one of these states. While a thread waits, whether it is READY or LIMITED is a
 * guess (is it throttled now?). The end of the wait replaces the guess by the kernel's own count: see wait_ends(). */
enum state { UNKNOWN = 0, RUNNING, READY, LIMITED, BLOCKED, ABSENT, STATES };

/* One watched thread. Only the pCPU that switches or wakes it writes (the kernel serialises those by the
 * thread's run-queue lock); readers compare `seq_first` with `seq_last` (see update_begin). */
struct slot {
	u64 seq_first;
	u32 tid;
	u32 vm;			/* number of its VM, 1-based; 0: free slot */
	u32 is_vcpu;
	u32 state;
	u32 cpu;		/* queued on, or ran on, last */
	u32 counted_running;	/* is part of its VM's running count */
	u32 woken;		/* this wait began with a wake-up */
	u32 clock;		/* its VM's, in running_clocks */
	u32 realtime;		/* was of a real-time class when the wait began */
	u32 rt_level;		/* which of its real-time groups had used up its budget then: see rt_throttled() */
	u32 waking_cpu;		/* the pCPU that began to wake it */
	u32 pad;
	u64 since;		/* when `state` began */
	u64 waking_since;	/* when a pCPU began to wake it; 0: none has, or it is awake */
	u64 waking_mark;	/* the VM's running clock then, or NO_LAG_MARK */
	u64 wait_since;		/* when the unbroken wait began */
	u64 charge_since;	/* up to where the wait has been charged to somebody */
	u64 waits;		/* number of its records so far */
	u64 charged_ns;		/* the sum of `ready` of its records */
	u64 charged_mark;	/* charged_ns when the wait began */
	u64 lag_mark;		/* the VM's running clock when ready began, or NO_LAG_MARK */
	u64 rt_since;		/* when the wait began, or moved to this queue, if rt_level is not 0 */
	u64 held_mark;		/* the queue's held clock when the wait began, or moved to this queue */
	u64 held_ns;		/* how long quotas held it in this wait, on queues it has left */
	u64 in_state[STATES];	/* ns, closed spells only */
	u64 lag_ns;
	u64 waking_ns;		/* ready while its wake-up was on its way to another pCPU */
	u64 overlap_ns;
	u64 switches;
	u64 preemptions;
	u64 wakeups;
	u64 migrations;
	u64 surprises;		/* transitions that should not happen: lost events show here */
	u64 exit_mark;		/* run time when it last left its guest, halt polling since then added; 0: is in its guest */
	u64 halt_poll_limit;	/* how long KVM polls at most in this halt */
	u64 first_blocked;	/* when it first blocked since it left its guest; 0: has not */
	u64 exit_ns;		/* running outside its guest, but for halt polling */
	u64 halt_poll_ns;	/* waiting for an interrupt by looking, before it blocks */
	u32 wake_latency[HIST_BUCKETS];
	u32 ready_spell[HIST_BUCKETS];
	u64 seq_last;
};

/* Above all that a running clock reads. */
#define NO_LAG_MARK (~0ULL)

enum culprit_kind { CULPRIT_IDLE = 0, CULPRIT_VM, CULPRIT_PROCESS, CULPRIT_KERNEL };

struct culprit {
	u32 kind;
	u32 id;			/* number of the VM, or thread group id */
	char comm[16];
};

struct runner {
	u64 since;
	struct culprit who;
};

/* A wait, or the part of it on one pCPU, that is over. */
struct wait {
	u32 slot;		/* 1-based */
	u32 tid;		/* slots are given to other threads */
	u32 cpu;		/* where it waited */
	u32 pad;
	u64 number;		/* of the slot's records: 1, 2, 3, ... A gap says that records were lost */
	u64 from, to;
	u64 ready;		/* the last part of it; before that a quota held the thread */
	u64 charged_ns;		/* that of the slot, with this record */
};

/* What one pCPU is doing. Written by that pCPU alone. */
struct pcpu {
	u32 current_slot;	/* 1-based; 0: no VM's thread */
	u32 current_tid;
	u32 irq_depth;
	u32 unseen;		/* switches that the kernel did not report and that were inferred from the next one */
	u64 irq_since;
	u32 next_wait;		/* where the next wait is written */
	u32 next;		/* where the next runner is written */
	u32 most_tries;		/* the most steps that a loop took here, if more than one */
	u32 pad;
	struct runner runners[RUNNERS];
	struct wait waits[WAITS];
};

/* A switch, or a wake-up of a watched thread: 16 bytes. */
struct event {
	u64 ns;			/* CLOCK_MONOTONIC */
	u32 next_tid;
	u32 prev_tid_state;	/* low 22 bits: tid (PID_MAX_LIMIT is 2^22); high 10: the kernel's prev_state */
};

#define EVENT_WOKEN 1022	/* in the place of prev_state: that thread was woken; no thread is in all those states */

struct event_batch {
	u32 cpu;
	u32 count;
	u64 lost;		/* switches that found the ring buffer full, on this pCPU so far */
	u64 wake_ups;		/* of the events below, how many are no switches */
	struct event events[EVENTS_PER_BATCH];
};

/* Slots that are laid ready for threads not known yet. */
#define SPARES 1024
/* The first bytes of a command line: a QEMU's name stands at its begin, its UUID within these. */
#define ARGUMENTS 2048

/* A thread that took a vCPU's name, and the slot that counts it. */
struct birth {
	u32 slot;		/* 1-based */
	u32 tid;
	u32 tgid;
	u32 user;		/* effective */
	u64 started;		/* its process, CLOCK_BOOTTIME ns */
	u32 arguments_bytes;	/* 0: not known */
	u32 pad;
	char comm[16];
	char arguments[ARGUMENTS]; /* each ends with a zero byte */
};

/* What walking the tasks tells of one: moments at which periods begin of the quota of its group and of the group above. */
struct quota_clocks {
	u32 tid;
	u32 pad;
	u64 own;		/* CLOCK_MONOTONIC; 0: not known */
	u64 above;
};

#endif
