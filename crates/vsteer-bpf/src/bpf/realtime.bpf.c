// SPDX-License-Identifier: GPL-2.0
/*
 * Who runs, so that a VM whose timer ends runs at that moment and yet gets no more than its share?
 *
 * A policy of sched_ext for the whole host: borrowed virtual time (BVT; Duda and Cheriton, SOSP 1999) over cgroups, with
 * the warp of VIT (Park et al., J. KIISE 37(1), 2010) at the end of a guest's timer.
 *
 * Ideas worth knowing before changing anything:
 *
 *  - All ordinary tasks are scheduled here, not VMs alone (a full switch). The ext class lies below the fair one: were only
 *    VMs here, any program of the host that computes would stop them all.
 *
 *  - Who is charged is a *domain*: a VM with all its threads, else a cgroup, and in the root cgroup each thread by itself. A
 *    domain's actual virtual time (avt) grows as its threads run, the slower the larger its share. Its share is that of its weight among
 *    the active ones beside it, and of theirs one level up, and so on: as the kernel's own group scheduling has it.
 *
 *  - A thread that becomes runnable is queued by its domain's avt; the least runs. Who runs keeps the pCPU for a slice. A domain
 *    that slept is brought up to the system's virtual time (svt): sleeping saves nothing up, but a debt remains.
 *
 *  - When a guest's timer ends, its vCPU is queued before all others, in the order of the ends, and who runs there is
 *    interrupted. What it runs is charged as ever: it borrows from its own future. How far its avt may be ahead of svt is
 *    bounded (the warp), so is how long it runs in one go (the limit), what it pauses after that, and how often it may ask.
 *    A guest that asks all the time ends up in debt, is refused, and has its share.
 *
 *  - The end of a guest's timer needs no help from the guest: KVM keeps it in an hrtimer of the kernel's, whose end is a
 *    tracepoint, in the timer's own interrupt, before KVM wakes the vCPU. So the wake-up finds the vCPU marked already. That
 *    holds for a vCPU that was preempted as well, which nobody wakes.
 *
 *  - A guest may say by a hypercall which timer matters (vsteer-guest's vit); then its others do not count. The next call
 *    ends the warp: so the rest of what the VM does runs on its ordinary share, which the timer alone cannot tell.
 *
 *  - Threads that the kernel has for each pCPU (ksoftirqd, workers) never wait behind a VM: they go first.
 *
 *  - Quotas (cpu.max) are enforced here, for the kernel does not do it for tasks of a policy: see realtime_quota.h.
 *
 *  - Threads of a domain take turns. Where their nice values differ, each has a virtual time of its own besides, which passes the faster the less it
 *    weighs among them, so that it has its part of what the domain gets: see key_after in realtime_shares.h.
 */
#include "scx.h"
#include "realtime.h"

#define CLOCK_MONOTONIC 1

char LICENSE[] SEC("license") = "GPL";

const volatile struct settings settings;

struct state state;

/* What user space says while the policy runs. */
enum { GENERATION /* raised whenever the table of VMs has changed */, PAUSED /* nothing is counted */, TOLD };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TOLD);
	__type(key, u32);
	__type(value, u32);
} told SEC(".maps");

struct thread {
	u32 group;
	u32 active_in;		/* group that counts it as active; 0: none */
	bool active_alone;	/* of the root: counts with its own weight */
	bool warping;
	bool queued;
	bool raised;		/* counted in `raised` */
	bool parked;		/* waits for its group's quota */
	bool from_wake;		/* `ended` is to be its next wake-up */
	u32 timer;		/* 1-based index in `calls`; 0: has none yet */
	u32 weight;		/* by its nice value, as it counts in its domain */
	u64 avt;		/* of a thread of the root; of others where nice values differ: its own */
	u64 began;		/* when it began to run, ns */
	u64 scale;		/* of its virtual time, then */
	u64 calls_until;	/* so long its guest says which timers matter; 0: it never did */
	u64 ended;		/* when the timer ended that it is put first for; 0: has run since */
	u64 asked;		/* its number among those */
	u64 warped_ns;		/* run in this warp */
	u64 since;		/* it waits in a queue since then, ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u32);
	__type(value, struct group);
} groups SEC(".maps");

/* cgroup id -> index of its group. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u64);
	__type(value, u32);
} group_of SEC(".maps");

/* Indices that are free; filled before loading is over. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, GROUPS_MAX);
	__type(value, u32);
} free_groups SEC(".maps");

/* Opted in: cgroup id -> 1-based index of the VM. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u32);
} vms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1025);
	__type(key, u32);
	__type(value, struct asked);
} asked SEC(".maps");

/* The kernel's timer of a vCPU's local APIC -> the vCPU's thread. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u32);
} timers SEC(".maps");

/* Tells user space, which sleeps meanwhile, that a cgroup came or went, or that the policy has ended. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} changes SEC(".maps");

static void changed(void)
{
	u32 something = 1;

	/* Where it is full, it is told already. */
	bpf_ringbuf_output(&changes, &something, sizeof(something), 0);
}

/* A timer that a vCPU asked for by a call. */
struct call {
	struct bpf_timer timer;
	u32 pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VCPUS_MAX);
	__type(key, u32);
	__type(value, struct call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, VCPUS_MAX);
	__type(value, u32);
} free_calls SEC(".maps");

/* The period of a group's quota, by its index. */
struct period {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u32);
	__type(value, struct period);
} periods SEC(".maps");

/* What runs on a pCPU. */
struct running {
	u64 svt;		/* system virtual time here: the largest avt that was the least when it ran */
	u64 key;
	u64 began;
	u64 scale;
	u32 pid;
	u32 domain;
	bool warping;
	bool owed;		/* who is put first came while no task of ours ran here */
	u64 looked;		/* the last time that take_starved found nobody, ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS_MAX);
	__type(key, u32);
	__type(value, struct running);
} running SEC(".maps");

#define SCALE (1ULL << 16)
#define WEIGHT 100ULL		/* by default */
#define AVERAGED_NS 20000000ULL
#define THREADS_AVERAGED_NS 46000000ULL	/* as the kernel's load: half of it is gone in 32 ms */
#define AVERAGE_SHIFT 10
#define AHEAD_MOST_NS 100000000ULL	/* of a thread before its group: see key_after */
#define FIRST_BAND (1ULL << 60)
#define FIRST_STEP (1ULL << 50)

static __always_inline void not_raised(struct thread *t)
{
	if (t->raised) {
		t->raised = false;
		__sync_fetch_and_add(&state.raised, -1);
	}
}

static __always_inline struct thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

static __always_inline struct group *group_at(u32 index)
{
	return index ? bpf_map_lookup_elem(&groups, &index) : NULL;
}

static __always_inline bool before(u64 a, u64 b)
{
	return (long long)(a - b) < 0;
}

static __always_inline u64 queue_of(s32 cpu)
{
	return settings.queue_of[(u32)cpu & (CPUS_MAX - 1)];
}

/* Where threads wait for their group's quota. */
static __always_inline u64 parked_queue(void)
{
	return settings.queues;
}

/* Virtual time passes to here, on this pCPU: on others it may pass faster, where fewer share them. */
static __always_inline void advance(struct running *r, u64 to)
{
	if (r && before(r->svt, to))
		r->svt = to;
}

static __always_inline struct running *running_on(s32 cpu)
{
	u32 at = cpu;

	return bpf_map_lookup_elem(&running, &at);
}

/* For who is put first, whoever runs gives way. Where that is a task of a class above ours, whom it interrupted goes on after it, with
 * what is left of its slice and without our being asked: that one gives way as soon as it runs. */
static __always_inline void interrupt(struct running *r, s32 cpu)
{
	if (!r || r->warping)
		return;
	if (r->pid)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else
		r->owed = true;
}

/* The key of who goes before all others: as many ends of timers later as it is behind. What pCPUs that share a queue count from is the same but
 * for an instant in some days. */
static __always_inline u64 first_key(struct running *r, u64 asked)
{
	return (r ? r->svt & ~(FIRST_STEP - 1) : 0) - FIRST_BAND + asked;
}

#include "realtime_shares.h"

/* It asks for a pCPU: its domain weighs more by it. */
static __always_inline void activate(struct task_struct *p, struct thread *t)
{
	u32 domain = domain_of(t->group);
	struct running *r = running_on(scx_bpf_task_cpu(p));
	u64 *avt, least;

	t->weight = p->scx.weight;
	t->active_in = domain ? domain : t->group;
	t->active_alone = !domain;
	avt = avt_of(t, domain);
	least = (r ? r->svt : 0) - settings.slice;
	if (domain) {
		struct group *g = group_at(domain);

		if (g) {
			if (!g->active && before(*avt, least))
				*avt = least;
			weigh_thread(g, t->weight, 1);
		}
		count_active(domain, 1);
	} else {
		struct group *root = group_at(t->group);

		if (before(*avt, least))
			*avt = least;
		if (root)
			__sync_fetch_and_add(&root->active_weight, t->weight);
	}
}

static __always_inline void deactivate(struct task_struct *p, struct thread *t)
{
	if (!t->active_in)
		return;
	if (t->active_alone) {
		struct group *root = group_at(t->active_in);

		if (root)
			__sync_fetch_and_add(&root->active_weight, -(u64)t->weight);
	} else {
		struct group *g = group_at(t->active_in);

		if (g)
			weigh_thread(g, t->weight, -1);
		count_active(t->active_in, -1);
	}
	t->active_in = 0;
}

static u32 index_of(struct cgroup *cgrp)
{
	u64 id = BPF_CORE_READ(cgrp, kn, id);
	u32 *index = bpf_map_lookup_elem(&group_of, &id);

	return index ? *index : 0;
}

#include "realtime_quota.h"

/* ---- where threads belong ----------------------------------------------------------------------------------- */

SEC("struct_ops.s/cgroup_init")
s32 BPF_PROG(rt_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	u64 id = BPF_CORE_READ(cgrp, kn, id), above_id = BPF_CORE_READ(cgrp, kn, __parent, id);
	u32 index, *above;
	struct group *g;

	/* Without room its threads are charged as the root's are. */
	if (bpf_map_pop_elem(&free_groups, &index))
		return 0;
	g = group_at(index);
	if (!g)
		return 0;
	__builtin_memset(g, 0, sizeof(*g));
	above = bpf_map_lookup_elem(&group_of, &above_id);
	g->id = id;
	g->parent = above ? *above : 0;
	g->weight = args->weight;
	bpf_map_update_elem(&group_of, &id, &index, BPF_ANY);
	if (bpf_core_field_exists(args->bw_quota_us))
		set_quota(g, index, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	changed();
	return 0;
}

SEC("struct_ops.s/cgroup_exit")
void BPF_PROG(rt_cgroup_exit, struct cgroup *cgrp)
{
	u64 id = BPF_CORE_READ(cgrp, kn, id);
	u32 index = index_of(cgrp);
	struct group *g = group_at(index);

	if (!g)
		return;
	changed();
	no_quota(g, index);
	bpf_map_delete_elem(&group_of, &id);
	bpf_map_push_elem(&free_groups, &index, BPF_ANY);
}

SEC("struct_ops/cgroup_set_weight")
void BPF_PROG(rt_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	struct group *g = group_at(index_of(cgrp)), *above;

	if (!g)
		return;
	above = group_at(g->parent);
	g->weight = weight;
	if (above)
		add_above(g, above, g->active != 0, bpf_ktime_get_ns());
}

SEC("struct_ops.s/init_task")
s32 BPF_PROG(rt_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return -12; /* ENOMEM */
	t->group = index_of(args->cgroup);
	t->avt = 0;
	return 0;
}

SEC("struct_ops/exit_task")
void BPF_PROG(rt_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct thread *t = thread_of(p);
	struct call *call;
	u32 index;

	if (!t)
		return;
	not_raised(t);
	if (!t->timer)
		return;
	index = t->timer - 1;
	t->timer = 0;
	call = bpf_map_lookup_elem(&calls, &index);
	if (call) {
		bpf_timer_cancel(&call->timer);
		call->pid = 0;
	}
	bpf_map_push_elem(&free_calls, &index, BPF_ANY);
}

SEC("struct_ops/cgroup_move")
void BPF_PROG(rt_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct thread *t = thread_of(p);

	if (t)
		t->group = index_of(to);
}

/* ---- charging ----------------------------------------------------------------------------------------------- */

SEC("struct_ops/runnable")
void BPF_PROG(rt_runnable, struct task_struct *p, u64 flags)
{
	struct thread *t = thread_of(p);

	if (!t)
		return;
	if (t->from_wake) {
		t->from_wake = false;
		t->ended = bpf_ktime_get_ns();
	}
	activate(p, t);
}

SEC("struct_ops/quiescent")
void BPF_PROG(rt_quiescent, struct task_struct *p, u64 flags)
{
	struct thread *t = thread_of(p);

	if (!t)
		return;
	deactivate(p, t);
	t->parked = false;
	t->queued = false;
	not_raised(t);
	/* It has done what it was put first for. */
	if (flags & SCX_DEQ_SLEEP && !t->ended)
		t->warping = false;
}

/* Where it is counted what a VM asks for; while nothing is counted, at index 0, which is nobody's. */
static __always_inline struct asked *asked_by(u32 domain)
{
	struct group *g = group_at(domain);
	u32 *vm = g ? bpf_map_lookup_elem(&vms, &g->id) : NULL, which = PAUSED;
	u32 *paused = bpf_map_lookup_elem(&told, &which);
	u32 index = vm && paused && !*paused ? *vm : 0;

	return vm ? bpf_map_lookup_elem(&asked, &index) : NULL;
}

/* It ran for as long as a VM may that is put first. */
static void limit_reached(struct thread *t)
{
	u32 domain = domain_of(t->group);
	struct asked *a = asked_by(domain);
	struct group *g = group_at(domain);

	if (g)
		g->warps_again = bpf_ktime_get_ns() + settings.pause;
	if (a)
		__sync_fetch_and_add(&a->limited, 1);
}

SEC("struct_ops/running")
void BPF_PROG(rt_running, struct task_struct *p)
{
	struct thread *t = thread_of(p);
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	struct running *r = bpf_map_lookup_elem(&running, &cpu);
	u32 domain;
	u64 key;

	if (!t || !r)
		return;
	domain = domain_of(t->group);
	key = key_after(t, domain, 0);
	t->began = now;
	/* Now and not in the end: who has just woken to interrupt it would count for all that it ran. */
	t->scale = domain ? scale_of(domain, now) : scale_of_alone(p);
	t->queued = false;
	not_raised(t);
	r->key = key;
	r->began = now;
	r->scale = t->scale;
	r->pid = p->pid;
	r->domain = domain;
	r->warping = t->warping;
	if (r->owed) {
		r->owed = false;
		interrupt(r, cpu);
	}
	/* With others waiting, the least of them is what counts: see dispatch. */
	if (!t->warping && scx_bpf_dsq_nr_queued(queue_of(cpu)) == 0)
		advance(r, key);
	if (t->ended) {
		struct asked *a = asked_by(domain);
		u64 late = now - t->ended;

		t->ended = 0;
		if (a) {
			u32 bucket = bucket_of(late);

			__sync_fetch_and_add(&a->sum_ns, late);
			if (bucket < HIST_BUCKETS)
				__sync_fetch_and_add(&a->late[bucket], 1);
			if (late > a->max_ns)
				a->max_ns = late;
		}
	}
}

SEC("struct_ops/stopping")
void BPF_PROG(rt_stopping, struct task_struct *p, bool runnable)
{
	struct thread *t = thread_of(p);
	u64 now = bpf_ktime_get_ns(), ran;
	u32 cpu = bpf_get_smp_processor_id();
	struct running *r = bpf_map_lookup_elem(&running, &cpu);
	struct group *g;
	u32 domain;

	if (r) {
		r->pid = 0;
		r->warping = false;
	}
	if (!t || !t->began)
		return;
	ran = now - t->began;
	t->began = 0;
	domain = domain_of(t->group);
	g = group_at(domain);
	if (g) {
		if (are_uneven(g, t))
			t->avt = key_after(t, domain, ran);
		__sync_fetch_and_add(&g->avt, ran * t->scale / SCALE);
		__sync_fetch_and_add(&g->cpu_ns, ran);
	} else {
		t->avt += ran * t->scale / SCALE;
	}
	if (state.quotas)
		use_quota(t->group, ran);
	if (!t->warping)
		return;
	t->warped_ns += ran;
	if (t->warped_ns >= settings.limit) {
		limit_reached(t);
		t->warping = false;
	}
}

/* ---- queues ------------------------------------------------------------------------------------------------- */

/* Does the kernel keep one of these for each pCPU? What may run on one pCPU only is no sign of it: on a host of one pCPU that is true of
 * all, of those too that compute for milliseconds in the background (khugepaged, kdamond). */
static bool goes_first(struct task_struct *p)
{
	struct kthread *k;

	if (!(p->flags & PF_KTHREAD) || p->nr_cpus_allowed != 1)
		return false;
	k = BPF_CORE_READ(p, worker_private);
	return k && BPF_CORE_READ(k, flags) & KTHREAD_IS_PER_CPU;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(rt_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct thread *t = thread_of(p);
	bool idle = false;
	s32 cpu;

	if (t && must_wait(t))
		return prev;
	cpu = scx_bpf_select_cpu_dfl(p, prev, wake_flags, &idle);
	if (idle)
		insert(p, SCX_DSQ_LOCAL, t ? slice_of(t, settings.slice) : settings.slice, 0);
	return cpu;
}

SEC("struct_ops/enqueue")
void BPF_PROG(rt_enqueue, struct task_struct *p, u64 flags)
{
	struct thread *t = thread_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct running *r = running_on(cpu);
	u64 key, now, so_far, until;

	if (!t || goes_first(p)) {
		insert(p, SCX_DSQ_LOCAL, settings.slice, flags | SCX_ENQ_PREEMPT);
		return;
	}
	until = must_wait(t);
	if (until) {
		is_parked(p, t);
		insert_vtime(p, parked_queue(), settings.slice, until, flags);
		return;
	}
	/* Nobody else is there: it goes on. */
	if (flags & SCX_ENQ_LAST) {
		insert(p, SCX_DSQ_LOCAL, slice_of(t, settings.slice), flags);
		return;
	}
	t->queued = true;
	t->since = bpf_ktime_get_ns();
	if (t->warping) {
		/* Before all others, in the order of the ends. */
		insert_vtime(p, queue_of(cpu), slice_of(t, settings.limit), first_key(r, t->asked), flags);
		interrupt(r, cpu);
		return;
	}
	key = key_after(t, domain_of(t->group), 0);
	insert_vtime(p, queue_of(cpu), slice_of(t, settings.slice), key, flags);
	if (!r || !r->pid || r->warping)
		return;
	now = bpf_ktime_get_ns();
	so_far = now - r->began;
	if (so_far >= settings.granularity && before(key + settings.granularity, r->key + so_far * r->scale / SCALE))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

#include "realtime_waiting.h"

static __always_inline void stop_warping(struct thread *t, s32 cpu)
{
	struct running *r = running_on(cpu);

	t->warping = false;
	if (r)
		r->warping = false;
}

/* The least virtual time that waits in a queue, now that those are gone from it whose quota was used up meanwhile; false: nobody waits. */
static bool first_of(u64 queue, u64 *key)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool some = false;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		while ((p = bpf_iter_scx_dsq_next(&it))) {
			struct thread *t = thread_of(p);
			u64 until = t ? must_wait(t) : 0;

			if (!until) {
				some = true;
				*key = p->scx.dsq_vtime;
				break;
			}
			is_parked(p, t);
			scx_bpf_dsq_move_set_vtime(&it, until);
			scx_bpf_dsq_move_vtime(&it, p, parked_queue(), 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return some;
}

/* Does who ran have the least virtual time still? Then it goes on. */
static bool goes_on(struct task_struct *prev, bool some, u64 least)
{
	struct thread *t;
	u64 key;

	if (!(prev->scx.flags & SCX_TASK_QUEUED))
		return false;
	t = thread_of(prev);
	if (!t || goes_first(prev) || must_wait(t))
		return false;
	if (t->warping) {
		u64 so_far = t->warped_ns + (t->began ? bpf_ktime_get_ns() - t->began : 0);

		if (so_far < settings.limit)
			return true;
		limit_reached(t);
		stop_warping(t, scx_bpf_task_cpu(prev));
	}
	key = key_after(t, domain_of(t->group), t->began ? bpf_ktime_get_ns() - t->began : 0);
	if (some && !before(key, least))
		return false;
	advance(running_on(scx_bpf_task_cpu(prev)), key);
	return true;
}

SEC("struct_ops/dispatch")
void BPF_PROG(rt_dispatch, s32 cpu, struct task_struct *prev)
{
	struct running *r = running_on(cpu);
	u64 own = queue_of(cpu), least = 0;
	bool some;

	if (state.raised > 0 && take_raised(own, cpu))
		return;
	if (take_starved(own, cpu))
		return;
	some = first_of(own, &least);
	if (prev && goes_on(prev, some, least)) {
		struct thread *t = thread_of(prev);

		set_slice(prev, t ? slice_of(t, settings.slice) : settings.slice);
		return;
	}
	if (some && r && before(r->svt - FIRST_BAND / 2, least))
		advance(r, least);
	if (move_to_local(own))
		return;
	/* Another queue's work rather than none. */
	for (u32 i = 1; i < settings.queues && i < CPUS_MAX; i++) {
		u64 other = own + i < settings.queues ? own + i : own + i - settings.queues;

		if (first_of(other, &least) && move_to_local(other))
			return;
	}
}

#include "realtime_timers.h"

/* ---- coming and going --------------------------------------------------------------------------------------- */

SEC("struct_ops.s/init")
s32 BPF_PROG(rt_init)
{
	for (u32 i = 0; i <= settings.queues && i < CPUS_MAX; i++) {
		s32 failed = scx_bpf_create_dsq(i, -1);

		if (failed)
			return failed;
	}
	return 0;
}

SEC("struct_ops/exit")
void BPF_PROG(rt_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(state.exit_reason, sizeof(state.exit_reason), info->reason);
	bpf_probe_read_kernel_str(state.exit_message, sizeof(state.exit_message), info->msg);
	state.exit_code = info->exit_code;
	state.exit_kind = info->kind;
	changed();
}

SEC(".struct_ops.link")
struct sched_ext_ops realtime = {
	.select_cpu = (void *)rt_select_cpu,
	.enqueue = (void *)rt_enqueue,
	.dispatch = (void *)rt_dispatch,
	.runnable = (void *)rt_runnable,
	.running = (void *)rt_running,
	.stopping = (void *)rt_stopping,
	.quiescent = (void *)rt_quiescent,
	.init_task = (void *)rt_init_task,
	.exit_task = (void *)rt_exit_task,
	.cgroup_init = (void *)rt_cgroup_init,
	.cgroup_exit = (void *)rt_cgroup_exit,
	.cgroup_move = (void *)rt_cgroup_move,
	.cgroup_set_weight = (void *)rt_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)rt_cgroup_set_bandwidth,
	.init = (void *)rt_init,
	.exit = (void *)rt_exit,
	/* A vCPU that is interrupted within a program of ours may not migrate: without this it would go round our queue. Who is alone has to ask whether
	 * it may go on, for its quota may be used up. */
	.flags = SCX_OPS_ENQ_MIGRATION_DISABLED | SCX_OPS_ENQ_LAST,
	/* As long as the kernel lets one wait: for a quota it may be seconds. */
	.timeout_ms = 30000,
	.name = "vsteer_realtime",
};
