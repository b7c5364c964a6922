/* SPDX-License-Identifier: GPL-2.0 */
/* Quotas (cpu.max): a group with all below it runs for so long in a period. Part of realtime.bpf.c, by its maps and queues. The kernel does not
 * enforce them for tasks of a policy; it only tells which there are (Linux 6.17 on).
 *
 * A period begins at a multiple of its length. What was used beyond the quota, for the kernel takes a pCPU away at its ticks, is owed in the
 * next ones: so over some periods a group gets what it is due. What waits for a period lies in a queue of its own, by when that begins, and
 * weighs nothing meanwhile. */

/* The quota's part of `now`: what belongs to periods that have passed since is added. */
static void refill(struct group *g, u64 now)
{
	u64 former = g->period_began, began;
	long long more, left, most = g->quota + g->burst;

	if (!g->period)
		return;
	began = now - now % g->period;
	if (began == former || !__sync_bool_compare_and_swap(&g->period_began, former, began))
		return;
	/* Others may use some of it meanwhile. */
	more = (began - former) / g->period * g->quota;
	left = __sync_fetch_and_add(&g->left, more) + more;
	if (left > most)
		__sync_fetch_and_add(&g->left, most - left);
}

/* When there is something left again for threads of this group, if it or one above has used all; else 0. */
__noinline u64 out_of_quota(u32 index)
{
	u64 now = bpf_ktime_get_ns(), until = 0;
	int i;

	bpf_for(i, 0, DEPTH_MAX) {
		struct group *g = group_at(index);

		if (!g)
			break;
		if (g->quota) {
			refill(g, now);
			if (g->left <= 0) {
				u64 at = g->period_began + (1 + (u64)-g->left / g->quota) * g->period;

				if (before(until, at))
					until = at;
			}
		}
		index = g->parent;
	}
	return until;
}

/* Of `slice`, so much may a thread of this group run. */
__noinline u64 within_quota(u32 index, u64 slice)
{
	int i;

	bpf_for(i, 0, DEPTH_MAX) {
		struct group *g = group_at(index);

		if (!g)
			break;
		if (g->quota && g->left < (long long)slice)
			slice = g->left > QUOTA_LEAST_NS ? g->left : QUOTA_LEAST_NS;
		index = g->parent;
	}
	return slice;
}

/* A thread of this group ran. */
__noinline int use_quota(u32 index, u64 ran)
{
	int i;

	bpf_for(i, 0, DEPTH_MAX) {
		struct group *g = group_at(index);

		if (!g)
			break;
		if (g->quota)
			__sync_fetch_and_add(&g->left, -(long long)ran);
		index = g->parent;
	}
	return 0;
}

static __always_inline u64 slice_of(struct thread *t, u64 slice)
{
	return state.quotas ? within_quota(t->group, slice) : slice;
}

static __always_inline u64 must_wait(struct thread *t)
{
	return state.quotas ? out_of_quota(t->group) : 0;
}

/* It waits for its quota, and is none of those that ask for a pCPU. */
static __always_inline void is_parked(struct task_struct *p, struct thread *t)
{
	deactivate(p, t);
	t->parked = true;
	t->queued = false;
	t->warping = false;
	not_raised(t);
}

/* Whose quota is there again, or gone, goes back to where it waits for a pCPU. */
static void release_parked(void)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (bpf_iter_scx_dsq_new(&it, parked_queue(), 0)) {
		bpf_iter_scx_dsq_destroy(&it);
		return;
	}
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		struct thread *t = thread_of(p);
		s32 cpu = scx_bpf_task_cpu(p);

		if (!t || out_of_quota(t->group))
			continue;
		t->parked = false;
		t->queued = true;
		activate(p, t);
		scx_bpf_dsq_move_set_slice(&it, slice_of(t, settings.slice));
		scx_bpf_dsq_move_set_vtime(&it, key_after(t, domain_of(t->group), 0));
		scx_bpf_dsq_move_vtime(&it, p, queue_of(cpu), 0);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	bpf_iter_scx_dsq_destroy(&it);
}

static int period_ends(void *map, u32 *index, struct period *period)
{
	struct group *g = group_at(*index);

	release_parked();
	if (g && g->quota && g->period)
		bpf_timer_start(&period->timer, g->period - bpf_ktime_get_ns() % g->period, 0);
	return 0;
}

static void set_quota(struct group *g, u32 index, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct period *period = bpf_map_lookup_elem(&periods, &index);
	u64 now = bpf_ktime_get_ns();
	bool former = g->quota, wanted = quota_us != NO_QUOTA && quota_us && period_us;

	if (!period)
		return;
	g->quota = wanted ? quota_us * 1000 : 0;
	g->burst = wanted ? burst_us * 1000 : 0;
	g->period = wanted ? period_us * 1000 : 0;
	g->left = g->quota;
	g->period_began = wanted ? now - now % g->period : 0;
	if (former != wanted)
		__sync_fetch_and_add(&state.quotas, wanted ? 1 : -1);
	if (!former && !wanted)
		return;
	/* Of a former group it is there already. */
	bpf_timer_init(&period->timer, &periods, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&period->timer, period_ends);
	/* Where there is no quota any more, who waited for it is let go at once; so is who waited for a smaller one. */
	bpf_timer_start(&period->timer, 1, 0);
}

/* The group is no more, and nobody is in it. */
static void no_quota(struct group *g, u32 index)
{
	struct period *period = bpf_map_lookup_elem(&periods, &index);

	if (!g->quota)
		return;
	g->quota = 0;
	__sync_fetch_and_add(&state.quotas, -1);
	if (period)
		bpf_timer_cancel(&period->timer);
}

SEC("struct_ops/cgroup_set_bandwidth")
void BPF_PROG(rt_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	u32 index = index_of(cgrp);
	struct group *g = group_at(index);

	if (g)
		set_quota(g, index, period_us, quota_us, burst_us);
}
