/* SPDX-License-Identifier: GPL-2.0 */
/* When does a guest's timer end, and is its vCPU put first then? Part of realtime.bpf.c, by its maps and queues: KVM's own timer of a vCPU, or one
 * that the guest asked for by a call, and what is refused. */

SEC("tp_btf/hrtimer_start")
int BPF_PROG(rt_timer_starts, struct hrtimer *timer)
{
	struct task_struct *p;
	struct thread *t;
	u64 at;
	u32 pid;

	if (!(settings.sources & SOURCE_TIMER) || (u64)timer->function != settings.apic_timer)
		return 0;
	p = bpf_get_current_task_btf();
	t = thread_of(p);
	if (!t || !asked_by(domain_of(t->group)))
		return 0;
	at = (u64)timer;
	pid = p->pid;
	bpf_map_update_elem(&timers, &at, &pid, BPF_ANY);
	return 0;
}

/* How far the others are: who runs where this one would is further than when it began. (Where that is the VM itself it says nothing of
 * others: who asks while it runs would never be ahead.) */
static u64 others_now(struct task_struct *p, u32 domain, u64 now)
{
	struct running *r = running_on(scx_bpf_task_cpu(p));
	u64 others = r ? r->svt : 0, its;

	if (!r || !r->pid || r->warping || r->domain == domain)
		return others;
	its = r->key + (now - r->began) * r->scale / SCALE;
	return before(others, its) ? its : others;
}

/* Is there nobody whom it would go before, in its class, where it would run? Then it runs at once, whatever it owes. */
static bool has_it_all(struct task_struct *p, struct thread *t)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct running *r = running_on(cpu);

	return r && (!r->pid || t->began) && scx_bpf_dsq_nr_queued(queue_of(cpu)) == (t->queued ? 1 : 0);
}

/* A vCPU's timer has ended, now: it is put first, if its VM may borrow. */
static void ended(struct task_struct *p, bool by_call)
{
	struct thread *t = thread_of(p);
	u64 now = bpf_ktime_get_ns();
	u64 others;
	struct asked *a;
	struct group *g;
	u32 domain;

	if (!t)
		return;
	domain = domain_of(t->group);
	g = group_at(domain);
	a = asked_by(domain);
	if (!g || !a)
		return;
	__sync_fetch_and_add(&a->expired, 1);
	if (t->began) {
		/* Runs. It is measured as well: no time at all. */
		__sync_fetch_and_add(&a->running, 1);
		__sync_fetch_and_add(&a->late[0], 1);
	} else {
		t->ended = now;
		/* A blocked vCPU is woken by its own timer, which may be set to a little later. */
		t->from_wake = by_call && !t->queued;
	}
	if (!settings.honour)
		return;
	if (t->parked || must_wait(t)) {
		__sync_fetch_and_add(&a->over_quota, 1);
		return;
	}
	if (before(now, g->warps_again)) {
		__sync_fetch_and_add(&a->too_soon, 1);
		return;
	}
	others = others_now(p, domain, now);
	if (before(others + a->ahead_max, g->avt))
		a->ahead_max = g->avt - others;
	if (before(others + settings.warp, g->avt)) {
		if (has_it_all(p, t)) {
			if (!t->began)
				__sync_fetch_and_add(&a->running, 1);
			return;
		}
		__sync_fetch_and_add(&a->in_debt, 1);
		return;
	}
	g->warps_again = now + settings.apart;
	t->asked = __sync_fetch_and_add(&state.asks, 1);
	t->warped_ns = 0;
	t->warping = true;
	if (t->began) {
		struct running *r = running_on(scx_bpf_task_cpu(p));

		/* Goes on, and is not interrupted for another. */
		if (r)
			r->warping = true;
		return;
	}
	__sync_fetch_and_add(&a->honoured, 1);
	if (t->queued) {
		s32 cpu = scx_bpf_task_cpu(p);

		t->raised = true;
		__sync_fetch_and_add(&state.raised, 1);
		interrupt(running_on(cpu), cpu);
	}
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(rt_timer_ends, struct hrtimer *timer)
{
	struct task_struct *p;
	struct thread *t;
	u64 at;
	u32 *pid;

	if (!(settings.sources & SOURCE_TIMER) || (u64)timer->function != settings.apic_timer)
		return 0;
	at = (u64)timer;
	pid = bpf_map_lookup_elem(&timers, &at);
	if (!pid)
		return 0;
	p = bpf_task_from_pid(*pid);
	if (!p)
		return 0;
	t = thread_of(p);
	/* Where the guest says which timers matter, the others do not. */
	if (t && !before(bpf_ktime_get_ns(), t->calls_until))
		ended(p, false);
	bpf_task_release(p);
	return 0;
}

static int call_ends(void *map, u32 *key, struct call *call)
{
	struct task_struct *p = bpf_task_from_pid(call->pid);

	if (p) {
		ended(p, true);
		bpf_task_release(p);
	}
	return 0;
}

/* The timer of a thread that calls; it gets one at its first call. */
static struct call *call_of(struct thread *t, u32 pid)
{
	struct call *call;
	u32 index;

	if (!t->timer) {
		if (bpf_map_pop_elem(&free_calls, &index))
			return NULL;
		t->timer = index + 1;
	}
	index = t->timer - 1;
	call = bpf_map_lookup_elem(&calls, &index);
	if (call && call->pid != pid) {
		call->pid = pid;
		/* Of a former thread it is there already. */
		bpf_timer_init(&call->timer, &calls, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&call->timer, call_ends);
	}
	return call;
}

SEC("tp_btf/kvm_hypercall")
int BPF_PROG(rt_call, unsigned long number, unsigned long what, unsigned long ns)
{
	struct task_struct *p;
	struct thread *t;
	struct asked *a;
	struct call *call;

	if (number != CALL_NUMBER || !(settings.sources & SOURCE_CALL))
		return 0;
	p = bpf_get_current_task_btf();
	t = thread_of(p);
	a = t ? asked_by(domain_of(t->group)) : NULL;
	if (!a)
		return 0;
	__sync_fetch_and_add(&a->calls, 1);
	if (what != CALL_ARM || !ns || ns > CALL_LONGEST) {
		__sync_fetch_and_add(&a->malformed, 1);
		return 0;
	}
	t->calls_until = bpf_ktime_get_ns() + ns + CALLS_FOR;
	call = call_of(t, p->pid);
	if (call)
		bpf_timer_start(&call->timer, ns, 0);
	/* Who asks anew has done what it was put first for: what else it does is done in its turn. Last, for it
	 * may be interrupted right here. */
	if (t->warping) {
		s32 cpu = scx_bpf_task_cpu(p);

		stop_warping(t, cpu);
		if (scx_bpf_dsq_nr_queued(queue_of(cpu)) > 0)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}
