// SPDX-License-Identifier: GPL-2.0
/*
 * Where is the time of a VM's threads, and who had the pCPU while one was ready?
 *
 * Each watched thread is a small state machine (running, ready, limited, blocked, absent) driven by the
 * scheduler's own tracepoints; every spell is measured from the event that began it to the event that ended it,
 * so no state is the remainder of the others and user space can print the residual.
 *
 * Ideas worth knowing before changing anything:
 *
 *  - A thread that belongs to no VM must cost next to nothing. What it costs: a load that finds no task storage,
 *    one clock read, one store of 32 bytes into the pCPU's ring of recent runners.
 *
 *  - Blame is settled in user space (src/blame). A wait that ends leaves one record; with the ring of runners it says
 *    who ran meanwhile. So no hook has a loop, whatever waits and however long, and no table of culprits can fill.
 *
 *  - Lag ("ready while a sibling ran") is the difference of a clock that advances while at least one vCPU of the VM
 *    runs. Such a clock is one 64-bit word, count and offset packed, so a compare-and-swap keeps it exact without a
 *    lock: see clock_step().
 *
 * Limited: the kernel keeps, per task group and pCPU, a clock of how long a quota held threads of that queue
 * (throttled_clock_self and _self_time, since 6.6). What it advanced by during a wait is limited, the rest ready;
 * that holds however the kernel holds them (the whole queue set aside, or, since 6.18, each thread on its way to
 * user mode). Several threads of ONE task group on one pCPU share the clock: libvirt gives each vCPU a group of
 * its own, so there it is exact; elsewhere a thread that is ready while its neighbour in the group is held counts as
 * limited.
 *
 * Real-time threads do not obey quotas. They have budgets: of each cgroup (CONFIG_RT_GROUP_SCHED), and before Linux 6.12 of
 * all real-time threads of a pCPU. A wait that begins while such a budget is used up is limited until the budget's last
 * period began, and ready after that.
 *
 * Left out: GAP(scx-queues), a sched_ext policy may keep threads in queues that several pCPUs share: blame then names who ran on
 * the thread's last pCPU alone.
 * GAP(rt-budget-wait), a real-time thread that waits already when its group's budget runs out (several threads of
 * one such group on one pCPU) counts as ready until it runs; budgets of groups more than three levels above a thread's own.
 */
#include "kernel.h"
#include "layout.h"

char LICENSE[] SEC("license") = "GPL";

struct thread_mark {
	u32 slot; /* 1-based */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_mark);
} marks SEC(".maps");

/* tid -> slot: what register_threads looks for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, u32);
	__type(value, u32);
} slot_of_tid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct pcpu);
} pcpus SEC(".maps");

/* Index: slot.clock. Advances while at least one of its vCPUs runs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} running_clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct event_batch);
} open_batches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} event_batches SEC(".maps");

static __always_inline struct pcpu *pcpu_at(u32 cpu)
{
	return bpf_map_lookup_elem(&pcpus, &cpu);
}

/* ---- clocks ------------------------------------------------------------------------------------------------ */

#define CLOCK_COUNT_SHIFT 54
#define CLOCK_OFFSET_MASK ((1ULL << CLOCK_COUNT_SHIFT) - 1)
#define CLOCK_TRIES 16

/* The clock's reading at `now`: offset alone while the count is 0, else offset + now (mod 2^54 ns, 208 days). */
static __always_inline u64 clock_read(u64 word, u64 now)
{
	return ((word >> CLOCK_COUNT_SHIFT ? word + now : word)) & CLOCK_OFFSET_MASK;
}

/* One more (`step` = 1) or one fewer (-1) of whatever keeps the clock going. The only loop of all programs: a further step
 * means that another pCPU has changed the word meanwhile. */
static __always_inline void clock_step(u64 *word, int step, u64 now)
{
	int i;

	for (i = 0; i < CLOCK_TRIES; i++) {
		u64 old = *(volatile u64 *)word;
		u64 count = old >> CLOCK_COUNT_SHIFT, offset = old & CLOCK_OFFSET_MASK;

		if (step > 0) {
			if (count++ == 0)
				offset -= now;
		} else {
			if (count == 0)
				return;
			if (--count == 0)
				offset += now;
		}
		u64 new = count << CLOCK_COUNT_SHIFT | (offset & CLOCK_OFFSET_MASK);
		if (__sync_val_compare_and_swap(word, old, new) == old)
			break;
	}
	if (!i)
		return;
	struct pcpu *here = pcpu_at(bpf_get_smp_processor_id());

	/* With more than CLOCK_TRIES the step was not made. */
	if (here && here->most_tries < i + 1)
		here->most_tries = i + 1;
}

static __always_inline u64 clock_since(u64 *word, u64 mark, u64 now, u64 at_most)
{
	u64 d = (clock_read(*(volatile u64 *)word, now) - mark) & CLOCK_OFFSET_MASK;

	/* Two pCPUs' clocks may differ by some ns, which must not become 208 days. */
	if (d > CLOCK_OFFSET_MASK / 2)
		return 0;
	return d < at_most ? d : at_most;
}

/* ---- look-ups ---------------------------------------------------------------------------------------------- */

static __always_inline struct slot *slot_at(u32 one_based)
{
	u32 i = one_based - 1;

	return one_based ? bpf_map_lookup_elem(&slots, &i) : 0;
}

static __always_inline u32 slot_of(struct task_struct *p)
{
	struct thread_mark *m;

	/* Hardly any thread has storage of any program's: one load says so, where a look-up is three calls deep. */
	if (bpf_core_field_exists(p->bpf_storage) && !p->bpf_storage)
		return 0;
	m = bpf_task_storage_get(&marks, p, 0, 0);
	return m ? m->slot : 0;
}

/* A reader that loads the words of the slot from first to last sees seq_first == seq_last only if no update touched it
 * meanwhile: an update raises seq_last before its first store and seq_first after its last. */
static __always_inline void update_begin(struct slot *s)
{
	__sync_fetch_and_add(&s->seq_last, 1);
}

static __always_inline void update_end(struct slot *s)
{
	__sync_fetch_and_add(&s->seq_first, 1);
}

/* ---- blame ------------------------------------------------------------------------------------------------- */

/* `part` of `whole` of ns, for times below 2^40 ns (18 minutes); longer waits lose precision, not their order. */
static __always_inline u64 scaled(u64 ns, u64 part, u64 whole)
{
	u64 per = whole ? (part << 20) / whole : 0;

	return ns * per >> 20;
}

/* The slot's thread was ready for the last `ready` ns before now, on its pCPU: says so to user space. The run-queue lock
 * is held here with interrupts off, so nothing else writes into this pCPU's ring meanwhile. */
static __always_inline void settle(struct slot *s, u32 slot, u64 ready, u64 now)
{
	u64 from = s->charge_since;
	struct pcpu *here = pcpu_at(bpf_get_smp_processor_id());

	s->charge_since = now;
	s->charged_ns += ready;
	s->waits++;
	/* One that a quota held all the time has a record too: it may have been taken for ready while it lasted. */
	if (!here)
		return;
	struct wait *w = &here->waits[here->next_wait % WAITS];

	w->slot = slot;
	w->tid = s->tid;
	w->cpu = s->cpu;
	w->number = s->waits;
	w->from = from;
	w->to = now;
	w->ready = ready;
	w->charged_ns = s->charged_ns;
	barrier(); /* readers take `next_wait` to mean that all before it is written; GAP(arm-order) */
	here->next_wait++;
}

/* ---- the state machine ------------------------------------------------------------------------------------- */

static __always_inline void set_running(struct slot *s, bool running, u64 now)
{
	u32 of_vm = s->clock;
	u64 *clock = bpf_map_lookup_elem(&running_clocks, &of_vm);

	if (!clock || !s->is_vcpu || s->counted_running == running)
		return;
	s->counted_running = running;
	clock_step(clock, running ? 1 : -1, now);
}

/* How long quotas have held threads of this queue so far. */
static __always_inline u64 held_clock(struct cfs_rq *queue)
{
	if (!queue || !bpf_core_field_exists(queue->throttled_clock_self_time))
		return 0;
	u64 ns = queue->throttled_clock_self_time, since = queue->throttled_clock_self;

	if (since) {
		u64 clock = queue->rq->clock;

		if (clock > since)
			ns += clock - since;
	}
	return ns;
}

/* The same of a queue known by address only. */
static __always_inline u64 held_clock_of_any(struct cfs_rq *queue)
{
	if (!bpf_core_field_exists(queue->throttled_clock_self_time))
		return 0;
	u64 ns = BPF_CORE_READ(queue, throttled_clock_self_time), since = BPF_CORE_READ(queue, throttled_clock_self);

	if (since) {
		u64 clock = BPF_CORE_READ(queue, rq, clock);

		if (clock > since)
			ns += clock - since;
	}
	return ns;
}

/* ---- budgets of real-time threads ---------------------------------------------------------------------------- */

#define RT_LEVELS 4
/* In the place of a level: the budget of all real-time threads of the pCPU. */
#define RT_ALL (RT_LEVELS + 1)

static __always_inline bool is_realtime(struct task_struct *p)
{
	return p->prio < MAX_RT_PRIO;
}

/* Which budget that holds for real-time thread `p` is used up: 1 is that of its own group, 2 of the group above, and so on;
 * 0: none. */
static __always_inline u32 rt_throttled(struct task_struct *p)
{
	if (!bpf_core_field_exists(p->rt.rt_rq)) {
		if (!bpf_core_field_exists(((struct rt_rq *)0)->rt_throttled))
			return 0;
		return p->se.cfs_rq->rq->rt.rt_throttled ? RT_ALL : 0;
	}
	struct rt_rq *queue = p->rt.rt_rq;
	struct sched_rt_entity *above = p->rt.parent;
	u32 level;

#pragma unroll
	for (level = 1; level <= RT_LEVELS; level++) {
		if (queue && queue->rt_throttled)
			return level;
		if (!above)
			return 0;
		queue = above->rt_rq;
		above = above->parent;
	}
	return 0;
}

static __always_inline struct task_group *group_above(struct task_group *group)
{
	return group ? BPF_CORE_READ(group, parent) : 0;
}

static __always_inline bool is_throttled_there(struct task_group *group, int cpu)
{
	struct rt_rq **queues = group ? BPF_CORE_READ(group, rt_rq) : 0, *queue = 0;

	if (queues)
		bpf_probe_read_kernel(&queue, sizeof(queue), queues + cpu);
	return queue && BPF_CORE_READ(queue, rt_throttled);
}

/* The same as rt_throttled() on another pCPU. Written out, as the compiler does not unroll a loop of such reads. */
static __always_inline u32 rt_throttled_there(struct task_struct *p, int cpu)
{
	if (!bpf_core_field_exists(((struct task_group *)0)->rt_rq))
		return 0;
	struct task_group *own = BPF_CORE_READ(p, sched_task_group);
	struct task_group *second = group_above(own), *third = group_above(second), *fourth = group_above(third);

	if (is_throttled_there(own, cpu))
		return 1;
	if (is_throttled_there(second, cpu))
		return 2;
	if (is_throttled_there(third, cpu))
		return 3;
	return is_throttled_there(fourth, cpu) ? RT_LEVELS : 0;
}

/* When the budget of this level was last filled up: when its period began. */
static __always_inline u64 rt_filled(struct task_struct *p, u32 level, u64 now)
{
	if (level > RT_LEVELS || !bpf_core_field_exists(((struct task_group *)0)->rt_bandwidth))
		return now;
	struct task_group *group = BPF_CORE_READ(p, sched_task_group);

	if (level > 1)
		group = group_above(group);
	if (level > 2)
		group = group_above(group);
	if (level > 3)
		group = group_above(group);
	if (!group)
		return now;
	u64 ends = BPF_CORE_READ(group, rt_bandwidth.rt_period_timer._softexpires);
	u64 began = ends - BPF_CORE_READ(group, rt_bandwidth.rt_period);

	return began < now ? began : now;
}

/* What the clock of its VM's running vCPUs reads. A thread whose VM is not known yet has no siblings yet. */
static __always_inline u64 siblings_ran(struct slot *s, u64 now)
{
	u32 of_vm = s->clock;
	u64 *clock = bpf_map_lookup_elem(&running_clocks, &of_vm);

	return clock && s->is_vcpu ? clock_read(*(volatile u64 *)clock, now) : NO_LAG_MARK;
}

static __always_inline void wait_begins(struct slot *s, struct task_struct *p, u64 now)
{
	s->lag_mark = siblings_ran(s, now);
	s->charge_since = now;
	s->charged_mark = s->charged_ns;
	s->wait_since = now;
	s->held_mark = held_clock(p->se.cfs_rq);
	s->held_ns = 0;
	s->realtime = is_realtime(p);
	s->rt_level = s->realtime ? rt_throttled(p) : 0;
	s->rt_since = now;
}

/* How long a quota or a budget held the waiting thread on its present queue. */
static __always_inline u64 held_since(struct slot *s, struct task_struct *p, u64 now)
{
	if (s->realtime) {
		if (!s->rt_level)
			return 0;
		u64 until = rt_throttled(p) ? now : rt_filled(p, s->rt_level, now);

		return until > s->rt_since ? until - s->rt_since : 0;
	}
	u64 held = held_clock(p->se.cfs_rq);

	return held > s->held_mark ? held - s->held_mark : 0;
}

static __always_inline void wait_ends(struct slot *s, u32 slot, struct task_struct *p, u64 now)
{
	u32 of_vm = s->clock;
	u64 wait = now > s->since ? now - s->since : 0;
	u64 charged = s->charged_ns - s->charged_mark;
	u64 held = s->held_ns + held_since(s, p, now);
	u64 *clock = bpf_map_lookup_elem(&running_clocks, &of_vm);

	if (held > wait)
		held = wait;
	u64 ready = wait - held;

	s->in_state[LIMITED] += held;
	s->in_state[READY] += ready;
	if (clock && s->is_vcpu && s->lag_mark != NO_LAG_MARK) {
		u64 lag = clock_since(clock, s->lag_mark, now, wait);

		s->lag_ns += held ? scaled(lag, ready, wait) : lag;
	}
	settle(s, slot, ready > charged ? ready - charged : 0, now);
}

static __always_inline void leave_state(struct slot *s, u32 slot, struct task_struct *p, u64 now)
{
	u32 state = s->state;

	if (state == READY || state == LIMITED)
		wait_ends(s, slot, p, now);
	else if (state < STATES) {
		/* Apart, lest one comparison of `state - 1` serve for both, which tells the verifier nothing of `state`. */
		barrier_var(state);
		if (state != UNKNOWN)
			s->in_state[state] += now > s->since ? now - s->since : 0;
	}
	if (state == RUNNING)
		set_running(s, false, now);
}

static __always_inline void enter_state(struct slot *s, struct task_struct *p, u32 state, u32 cpu, u64 now)
{
	s->state = state;
	s->since = now;
	s->cpu = cpu;
	if (state == RUNNING)
		set_running(s, true, now);
	if (state == READY || state == LIMITED) {
		wait_begins(s, p, now);
		if (s->rt_level)
			s->state = LIMITED;
	}
}

static __always_inline void switched_out(struct slot *s, u32 slot, struct task_struct *p, bool can_run, u32 prev_state,
					 u32 cpu, u64 now)
{
	u32 to = BLOCKED;

	if (prev_state & TASK_DEAD)
		to = ABSENT;
	else if (can_run)
		to = bpf_core_field_exists(p->throttled) && p->throttled ? LIMITED : READY;
	update_begin(s);
	if (s->state != RUNNING && s->state != UNKNOWN)
		s->surprises++;
	leave_state(s, slot, p, now);
	enter_state(s, p, to, cpu, now);
	if (to == BLOCKED && !s->first_blocked)
		s->first_blocked = now;
	if (to == READY || to == LIMITED) {
		s->preemptions += s->state == READY;
		s->woken = 0;
	}
	update_end(s);
}

static __always_inline void switched_in(struct slot *s, u32 slot, struct task_struct *p, u32 cpu, u64 now)
{
	update_begin(s);
	/* A wake-up is missed only if the probe was attached meanwhile. */
	if (s->state == BLOCKED || s->state == RUNNING)
		s->surprises++;
	if ((s->state == READY || s->state == LIMITED) && s->wait_since) {
		u64 ns = now > s->wait_since ? now - s->wait_since : 0;
		u32 b = bucket_of(ns);

		if (b < HIST_BUCKETS) {
			s->ready_spell[b]++;
			if (s->woken)
				s->wake_latency[b]++;
		}
	}
	leave_state(s, slot, p, now);
	enter_state(s, p, RUNNING, cpu, now);
	s->switches++;
	update_end(s);
}

static __always_inline void note_runner(struct pcpu *c, struct task_struct *p, struct slot *s, u64 now)
{
	struct runner *r = &c->runners[c->next % RUNNERS];

	r->since = now;
	if (s && s->vm) {
		r->who.kind = CULPRIT_VM;
		r->who.id = s->vm;
		*(u64 *)&r->who.comm[0] = 0;
		*(u64 *)&r->who.comm[8] = 0;
	} else if (!p->pid) {
		r->who.kind = CULPRIT_IDLE;
	} else {
		r->who.kind = p->flags & PF_KTHREAD ? CULPRIT_KERNEL : CULPRIT_PROCESS;
		r->who.id = p->tgid;
		/* In words: a copy of 16 characters becomes 16 loads, each with the check that a kernel pointer needs. */
		*(u64 *)&r->who.comm[0] = *(u64 *)&p->comm[0];
		*(u64 *)&r->who.comm[8] = *(u64 *)&p->comm[8];
	}
	barrier(); /* readers take `next` to mean that all before it is written; GAP(arm-order) */
	c->next++;
}

/* An event has room for ten bits of a state. Of states beyond them (a lock's sleep on PREEMPT_RT, a frozen task) it says that
 * the thread does not want to run. */
static __always_inline u32 recorded_state(u32 prev_state)
{
	u32 low = prev_state & ((1 << 10) - 1);

	return prev_state && !low ? TASK_UNINTERRUPTIBLE : low;
}

static __always_inline void note_event(u32 cpu, u32 prev_tid, u32 prev_state, u32 next_tid, u64 now)
{
	struct event_batch *b = bpf_map_lookup_elem(&open_batches, &cpu);

	if (!b)
		return;
	u32 n = b->count;

	if (n >= EVENTS_PER_BATCH)
		n = 0;
	b->events[n].ns = now;
	b->events[n].next_tid = next_tid;
	b->events[n].prev_tid_state = prev_tid | recorded_state(prev_state) << 22;
	b->cpu = cpu;
	b->count = n + 1;
	b->wake_ups += prev_state == EVENT_WOKEN;
	if (n + 1 < EVENTS_PER_BATCH)
		return;
	/* The reader looks by the clock: waking it for every batch would add switches to those that are counted. */
	if (bpf_ringbuf_output(&event_batches, b, sizeof(*b), BPF_RB_NO_WAKEUP))
		b->lost += EVENTS_PER_BATCH - b->wake_ups;
	b->count = 0;
	b->wake_ups = 0;
}

/* `next` gets this pCPU at `now`. */
static __always_inline void arrives(struct pcpu *c, u32 cpu, struct task_struct *next, u32 slot, u64 now)
{
	struct slot *s = slot_at(slot);
	u32 tid = next->pid;

	if (s)
		switched_in(s, slot, next, cpu, now);
	c->current_tid = tid;
	c->current_slot = slot;
	note_runner(c, next, s, now);
}

/* When the running task got its pCPU, by the kernel's own record. */
static __always_inline u64 arrival(struct task_struct *p, struct pcpu *c, u64 now)
{
	u64 last_change = c->runners[(c->next - 1) % RUNNERS].since;
	u64 clock = p->se.cfs_rq->rq->clock, at = p->sched_info.last_arrival;
	u64 ago = clock > at ? clock - at : 0;

	return now > ago && now - ago > last_change ? now - ago : last_change;
}

static __always_inline int switched(bool preempt, struct task_struct *prev, struct task_struct *next, u32 prev_state,
				    bool record_events)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct pcpu *c = pcpu_at(cpu);
	u64 now = bpf_ktime_get_ns();
	u32 prev_tid = prev->pid, next_tid = next->pid;
	u32 prev_slot = prev_tid ? slot_of(prev) : 0;
	u32 next_slot = next_tid ? slot_of(next) : 0;

	if (!c)
		return 0;
	/* Who leaves is not who came last: a switch went unreported. Kernels do that (seen on a 6.18 in which the idle
	 * task of one pCPU and one process's threads never leave); what it was follows from who runs now. */
	if (c->next && c->current_tid != prev_tid) {
		u64 then = arrival(prev, c, now);

		c->unseen++;
		if (record_events)
			note_event(cpu, c->current_tid, 0, prev_tid, then);
		arrives(c, cpu, prev, prev_slot, then);
	}
	if (record_events)
		note_event(cpu, prev_tid, preempt ? 0 : prev_state, next_tid, now);

	struct slot *s = slot_at(prev_slot);

	if (s && c->irq_depth) {
		/* Soft interrupts of PREEMPT_RT can be preempted. What is left of this one is not counted. */
		s->overlap_ns += now - c->irq_since;
		c->irq_depth = 0;
	}
	if (s)
		switched_out(s, prev_slot, prev, preempt || prev_state == TASK_RUNNING, prev_state, cpu, now);
	arrives(c, cpu, next, next_slot, now);
	return 0;
}

/* The loader loads one of the two: recording every switch is paid for by those who ask for it. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, u32 prev_state)
{
	return switched(preempt, prev, next, prev_state, false);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch_recording, bool preempt, struct task_struct *prev, struct task_struct *next, u32 prev_state)
{
	return switched(preempt, prev, next, prev_state, true);
}

/* A pCPU begins to wake the thread. Where that may be another one's work it only sends an interrupt there, and the thread
 * gets onto a queue when that pCPU serves it: at once, or much later beneath another hypervisor. */
SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct slot *s = slot_at(slot_of(p));

	if (!s)
		return 0;
	u64 now = bpf_ktime_get_ns();

	/* A reader that took this moment with the mark of an earlier wake-up would see siblings that ran meanwhile. */
	update_begin(s);
	s->waking_cpu = bpf_get_smp_processor_id();
	s->waking_mark = siblings_ran(s, now);
	s->waking_since = now;
	update_end(s);
	return 0;
}

/* When the wake-up that arrives now was sent, if another pCPU has sent it. It may have done that while the thread was on
 * its way to sleep. */
static __always_inline u64 sent_at(struct slot *s, u64 now)
{
	u64 sent = s->waking_since;

	if (!sent || s->state != BLOCKED || s->waking_cpu == bpf_get_smp_processor_id() || sent > now)
		return now;
	return sent > s->since ? sent : s->since;
}

static __always_inline int woken(struct task_struct *p, bool record_events)
{
	u32 slot = slot_of(p);
	struct slot *s = slot_at(slot);

	if (!s)
		return 0;
	/* A wake-up that finds the thread still on its pCPU changes nothing. */
	if (s->state != BLOCKED && s->state != UNKNOWN) {
		s->waking_since = 0;
		return 0;
	}
	u64 now = bpf_ktime_get_ns(), sent = sent_at(s, now);

	update_begin(s);
	leave_state(s, slot, p, sent);
	enter_state(s, p, READY, p->thread_info.cpu, sent);
	if (sent < now) {
		s->waking_ns += now - sent;
		if (sent == s->waking_since)
			s->lag_mark = s->waking_mark;
	}
	s->waking_since = 0;
	s->woken = 1;
	s->wakeups++;
	update_end(s);
	if (record_events)
		note_event(bpf_get_smp_processor_id(), p->pid, EVENT_WOKEN, 0, now);
	return 0;
}

/* Of each pair the loader loads one, as of the switches. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	return woken(p, false);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup_recording, struct task_struct *p)
{
	return woken(p, true);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	return woken(p, false);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new_recording, struct task_struct *p)
{
	return woken(p, true);
}

/* The queue of the task's group on another pCPU: from a table of pointers, until Linux 7.3 or a little before. */
static __always_inline struct cfs_rq *queue_by_table(struct task_struct *p, int cpu)
{
	struct cfs_rq **queues = BPF_CORE_READ(p, sched_task_group, cfs_rq), *queue = 0;

	bpf_probe_read_kernel(&queue, sizeof(queue), queues + cpu);
	return queue;
}

/* Since then the queues are per-CPU data: as far from the one it leaves as the run queue there is from the one here. */
static __always_inline struct cfs_rq *queue_per_cpu(struct task_struct *p, int cpu)
{
	struct rq *there = bpf_per_cpu_ptr(&runqueues, cpu), *here = p->se.cfs_rq->rq;

	if (!there || !here)
		return 0;
	u64 apart = (u64)there - (u64)here;

	barrier_var(apart); /* in another order the verifier would see pointers added */
	return (struct cfs_rq *)((u64)BPF_CORE_READ(p, se.cfs_rq) + apart);
}

static __always_inline int migrated(struct task_struct *p, int dest, bool per_cpu)
{
	u32 slot = slot_of(p);
	struct slot *s = slot_at(slot);

	if (!s)
		return 0;
	update_begin(s);
	s->migrations++;
	if (s->state == READY || s->state == LIMITED) {
		u64 now = bpf_ktime_get_ns();
		u64 held = held_since(s, p, now);
		u64 part = now > s->charge_since ? now - s->charge_since : 0;
		struct cfs_rq *queue = per_cpu ? queue_per_cpu(p, dest) : queue_by_table(p, dest);

		/* What it waited behind so far ran here; from now on another queue's quota clock counts. */
		s->held_ns += held;
		settle(s, slot, part > held ? part - held : 0, now);
		s->held_mark = queue ? held_clock_of_any(queue) : 0;
		if (s->realtime) {
			s->rt_level = rt_throttled_there(p, dest);
			s->rt_since = now;
			s->state = s->rt_level ? LIMITED : READY;
		}
	}
	s->cpu = dest;
	update_end(s);
	return 0;
}

/* The loader loads one of the two, by what this kernel's task_group says. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *p, int dest)
{
	return migrated(p, dest, false);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate_per_cpu, struct task_struct *p, int dest)
{
	return migrated(p, dest, true);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	u32 tid = p->pid;

	if (slot_of(p))
		bpf_map_delete_elem(&slot_of_tid, &tid);
	return 0;
}

/* ---- overlap ----------------------------------------------------------------------------------------------- */

static __always_inline int interrupt_begins(void)
{
	struct pcpu *c = pcpu_at(bpf_get_smp_processor_id());

	/* The current thread does not change inside an interrupt, so entry and exit take the same branch. */
	if (c && c->current_slot && c->irq_depth++ == 0)
		c->irq_since = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int interrupt_ends(void)
{
	struct pcpu *c = pcpu_at(bpf_get_smp_processor_id());

	if (!c || !c->current_slot || !c->irq_depth || --c->irq_depth)
		return 0;
	struct slot *s = slot_at(c->current_slot);

	if (s)
		s->overlap_ns += bpf_ktime_get_ns() - c->irq_since;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_entry) { return interrupt_begins(); }
SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_exit) { return interrupt_ends(); }
SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry) { return interrupt_begins(); }
SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit) { return interrupt_ends(); }
/* x86 only: elsewhere the timer is an ordinary interrupt and the loader leaves these two out. */
SEC("tp_btf/local_timer_entry")
int BPF_PROG(on_timer_entry) { return interrupt_begins(); }
SEC("tp_btf/local_timer_exit")
int BPF_PROG(on_timer_exit) { return interrupt_ends(); }

/* ---- KVM ---------------------------------------------------------------------------------------------------- */

/* Loaded only where the module kvm describes its types. They run for vCPUs alone, and of those only watched ones get
 * beyond one load. Time outside the guest is told by the thread's run time, so waits within an exit do not count. */

static __always_inline struct slot *current_slot(u32 *slot)
{
	*slot = slot_of(bpf_get_current_task_btf());
	return slot_at(*slot);
}

static __always_inline u64 run_time(struct slot *s, u64 now)
{
	return s->in_state[RUNNING] + (s->state == RUNNING && now > s->since ? now - s->since : 0);
}

SEC("tp_btf/kvm_exit")
int BPF_PROG(on_kvm_exit, struct kvm_vcpu *vcpu)
{
	u32 slot;
	struct slot *s = current_slot(&slot);

	if (!s)
		return 0;
	update_begin(s);
	s->exit_mark = run_time(s, bpf_ktime_get_ns());
	s->halt_poll_limit = vcpu ? vcpu->halt_poll_ns : 0;
	s->first_blocked = 0;
	update_end(s);
	return 0;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(on_kvm_entry)
{
	u32 slot;
	struct slot *s = current_slot(&slot);

	if (!s || !s->exit_mark)
		return 0;
	u64 run = run_time(s, bpf_ktime_get_ns());

	update_begin(s);
	if (run > s->exit_mark)
		s->exit_ns += run - s->exit_mark;
	s->exit_mark = 0;
	update_end(s);
	return 0;
}

/* A halt of `ns` is over. If it waited (blocked), it polled before that: from the halt's beginning until it blocked,
 * at most as long as KVM allowed; else it polled all the time. */
SEC("tp_btf/kvm_vcpu_wakeup")
int BPF_PROG(on_kvm_halt_ends, u64 ns, bool waited)
{
	u32 slot;
	struct slot *s = current_slot(&slot);

	if (!s || !s->exit_mark)
		return 0;
	u64 polled = ns;

	if (waited) {
		u64 began = bpf_ktime_get_ns() - ns, until = s->first_blocked;

		polled = until > began ? until - began : 0;
		if (polled > s->halt_poll_limit)
			polled = s->halt_poll_limit;
	}
	update_begin(s);
	s->halt_poll_ns += polled;
	s->exit_mark += polled;
	update_end(s);
	return 0;
}

/* ---- registration ------------------------------------------------------------------------------------------ */

/* Marks a thread and sets its first state, without overwriting what an event has set meanwhile. */
static __always_inline void begin(struct slot *s, u32 slot, struct thread_mark *m, struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns();
	u32 state = BLOCKED;

	if (p->on_cpu)
		state = RUNNING;
	else if (p->__state == TASK_RUNNING)
		state = bpf_core_field_exists(p->throttled) && p->throttled ? LIMITED : READY;
	struct slot *former = slot_at(m->slot);

	/* The mark first: an event that comes now finds the slot unknown, settles its state, and wins below. */
	m->slot = slot;
	if (former && former != s) {
		/* Nothing writes there any more: user space may give it to another thread. */
		set_running(former, false, now);
		former->state = ABSENT;
	}
	s->cpu = p->thread_info.cpu;
	s->since = now;
	s->charge_since = now;
	if (__sync_val_compare_and_swap(&s->state, UNKNOWN, state) == UNKNOWN && state == READY)
		enter_state(s, p, READY, s->cpu, now);
}

/* Run once after user space has filled slot_of_tid: marks the threads. */
SEC("iter/task")
int register_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p)
		return 0;
	u32 tid = p->pid, *slot = bpf_map_lookup_elem(&slot_of_tid, &tid);
	struct slot *s = slot ? slot_at(*slot) : 0;

	if (!s || s->state != UNKNOWN)
		return 0;
	struct thread_mark *m = bpf_task_storage_get(&marks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (m)
		begin(s, *slot, m, p);
	return 0;
}

#include "births.h"

/* ---- when periods of quotas begin -------------------------------------------------------------------------- */

/* A moment at which a period of this group's quota begins; 0: not known. Groups without a quota have one too. */
static __always_inline u64 quota_clock(struct task_group *group)
{
	if (!group || !bpf_core_field_exists(group->cfs_bandwidth.period_timer._softexpires))
		return 0;
	return BPF_CORE_READ(group, cfs_bandwidth.period_timer._softexpires);
}

/* Walks the tasks and writes a struct quota_clocks for each that is watched. */
SEC("iter/task")
int tell_quota_clocks(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p)
		return 0;
	u32 tid = p->pid;

	if (!bpf_map_lookup_elem(&slot_of_tid, &tid))
		return 0;
	struct task_group *group = BPF_CORE_READ(p, sched_task_group);
	struct quota_clocks told = {
		.tid = tid,
		.own = quota_clock(group),
		.above = group ? quota_clock(BPF_CORE_READ(group, parent)) : 0,
	};

	bpf_seq_write(ctx->meta->seq, &told, sizeof(told));
	return 0;
}
