/* SPDX-License-Identifier: GPL-2.0 */
/* Which waiting thread of a queue runs next, although others have less virtual time? Part of realtime.bpf.c.
 *
 * There are two reasons: a guest's timer ended while its vCPU waited, or a thread waits for very long. By virtual time alone, a group of weight 1 beside
 * one of weight 10,000 runs for a slice and then waits for 30 s. Its threads take turns, so each of them waits longer. The kernel ends a policy under
 * which a thread waits for more than 30 s. So a thread that has waited for STARVES_NS runs next, whatever its weight. */

#define STARVES_NS 5000000000ULL
#define LOOKS_EVERY_NS 100000000ULL

/* Moves this thread, if it is in the queue, to where the pCPU takes the next from. */
static bool take(u64 queue, s32 pid, u64 slice)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool taken = false;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		while ((p = bpf_iter_scx_dsq_next(&it))) {
			if (p->pid == pid) {
				scx_bpf_dsq_move_set_slice(&it, slice);
				taken = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
				break;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return taken;
}

/* The thread whose timer ended first, of those that were waiting in this queue when theirs did. */
static bool take_raised(u64 queue, s32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u64 first = ~0ULL;
	s32 pid = 0;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		while ((p = bpf_iter_scx_dsq_next(&it))) {
			struct thread *t = thread_of(p);

			if (t && t->warping && t->asked < first && bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
				first = t->asked;
				pid = p->pid;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return pid && take(queue, pid, settings.limit);
}

/* The thread that has waited longest in this queue, if it has waited too long. To look costs as much as there are threads, so the policy looks only now and
 * then. */
static bool take_starved(u64 queue, s32 cpu)
{
	struct running *r = running_on(cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u64 now = bpf_ktime_get_ns(), first = now - STARVES_NS;
	s32 pid = 0;

	if (!r || now - r->looked < LOOKS_EVERY_NS)
		return false;
	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		while ((p = bpf_iter_scx_dsq_next(&it))) {
			struct thread *t = thread_of(p);

			if (t && before(t->since, first) && !must_wait(t) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
				first = t->since;
				pid = p->pid;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	/* While there are such threads, the next dispatch looks again. */
	if (!pid)
		r->looked = now;
	return pid && take(queue, pid, settings.slice);
}
