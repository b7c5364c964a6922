/* SPDX-License-Identifier: GPL-2.0 */
/* Who is charged for a thread, and how fast does its virtual time pass? Part of realtime.bpf.c, by its maps: domains, who is active in them, and
 * their shares, level by level.
 *
 * A group weighs what its cpu.weight says or, where the kernel has it so (settings.concurrency), as many times that as it has runnable threads: from
 * Linux 7.3 on a group that could use several pCPUs weighs on each what it would there alone (debug/sched/cgroup_mode: concur). A host's work should
 * not get another share by this policy than by the kernel. */

/* The group that is charged for threads of this one; 0: the root's, each by itself. */
static u32 domain_of(u32 index)
{
	struct group *own = group_at(index), *g = own;
	u32 domain = index, at = index, which = GENERATION, now;
	u32 *generation = bpf_map_lookup_elem(&told, &which);

	if (!own || !own->parent || !generation)
		return 0;
	now = *generation + 1;
	if (own->generation == now)
		return own->domain;
	for (int i = 0; i < DEPTH_MAX && g && g->parent; i++) {
		if (bpf_map_lookup_elem(&vms, &g->id))
			domain = at;
		at = g->parent;
		g = group_at(at);
	}
	own->domain = domain;
	own->generation = now;
	return domain;
}

/* What has been `is` since it was asked last, over the last `span` ns. */
static __always_inline u64 averaged(struct average *average, u64 is, u64 span, u64 now)
{
	u64 value = average->value, passed = now - average->at;

	is <<= AVERAGE_SHIFT;
	if (passed >= span)
		value = is;
	else if (is > value)
		value += (is - value) * passed / span;
	else
		value -= (value - is) * passed / span;
	average->value = value;
	average->at = now;
	return value >> AVERAGE_SHIFT;
}

/* The weight of its active members: those that sleep for some us at a time must not make virtual time pass slower for whoever begins to run
 * just then. */
static __always_inline u64 weight_beside(struct group *g, u64 now)
{
	return averaged(&g->beside, g->active_weight, AVERAGED_NS, now);
}

/* How many times its weight does it have, where so many of its threads were runnable until now? Whole ones, as the kernel's own scheduler counts them:
 * a thread of QEMU's that waits now and then behind its vCPU does not make the VM weigh more. */
static __always_inline void count_times(struct group *g, u64 threads, u64 now)
{
	u64 times;

	if (settings.concurrency == 1)
		return;
	times = averaged(&g->threads, threads, THREADS_AVERAGED_NS, now);
	if (times > settings.concurrency)
		times = settings.concurrency;
	g->more = times > 1 ? times - 1 : 0;
}

static __always_inline u64 weight_of(struct group *g)
{
	return (u64)g->weight * (1 + g->more);
}

/* What it adds to the weight that is active above: exchanged, so that what several pCPUs add is what is there in the end. */
static __always_inline void add_above(struct group *g, struct group *above, bool active, u64 now)
{
	u64 adds = active ? weight_of(g) : 0, former;

	if (adds == g->adds)
		return;
	weight_beside(above, now);
	former = __sync_lock_test_and_set(&g->adds, adds);
	__sync_fetch_and_add(&above->active_weight, adds - former);
}

/* One thread more or fewer runs or waits in this group: so it does in those above, where they weigh by their threads; else they count groups. */
static void count_active(u32 index, int step)
{
	struct group *g = group_at(index);
	u64 now = bpf_ktime_get_ns();

	for (int i = 0; i < DEPTH_MAX && g; i++) {
		struct group *above = group_at(g->parent);
		u32 former;

		if (!above)
			return;
		former = __sync_fetch_and_add(&g->active, step);
		if (settings.concurrency == 1 && (step > 0 ? former != 0 : former != 1))
			return;
		count_times(g, former, now);
		add_above(g, above, former + step != 0, now);
		g = above;
	}
}

/* How fast virtual time passes for this domain now, in 2^-16: the smaller its share, the faster. At the top it passes by weight alone, so that it
 * does not matter to the rest who else wakes for a moment; below, a group's time is divided among those of its members that are active. */
static u64 scale_of(u32 domain, u64 now)
{
	struct group *g = group_at(domain);
	u64 scale = SCALE;

	for (int i = 0; i < DEPTH_MAX && g; i++) {
		struct group *above = group_at(g->parent);
		u64 weight, all;

		if (!above || !g->weight)
			break;
		if (settings.concurrency > 1) {
			/* Of those who never sleep nobody else counts. */
			count_times(g, g->active, now);
			add_above(g, above, g->active != 0, now);
		}
		weight = weight_of(g);
		all = above->parent ? weight_beside(above, now) : WEIGHT;
		if (!above->parent || all > weight)
			scale = scale * all / weight;
		g = above;
	}
	return scale;
}

static u64 scale_of_alone(struct task_struct *p)
{
	u32 weight = BPF_CORE_READ(p, scx.weight);

	return weight ? SCALE * WEIGHT / weight : SCALE;
}

/* Its domain's actual virtual time, or its own. */
static __always_inline u64 *avt_of(struct thread *t, u32 domain)
{
	struct group *g = group_at(domain);

	return g ? &g->avt : &t->avt;
}

/* A thread of this weight more or fewer is runnable in the group that is charged for it. */
static __always_inline void weigh_thread(struct group *g, u32 weight, int step)
{
	__sync_fetch_and_add(&g->weights, step * (long long)weight);
	if (weight != WEIGHT)
		__sync_fetch_and_add(&g->uneven, step);
}

/* GAP(rt-nice): beyond nice 15 a thread gets more than its part. */
/* Do nice values matter: are there others beside it, and not all of the ordinary weight? */
static __always_inline bool are_uneven(struct group *g, struct thread *t)
{
	return g->uneven && g->weights > t->weight && t->weight;
}

/* The virtual time by which it is queued, once it has run for so many ns more: its domain's, which all threads of it have alike and so take turns; or, where
 * their nice values differ, its own, which passes as the domain's does if each has what it is due among them.
 *
 * What it may be ahead by is bounded: while it waits, those beside it may fall asleep, and then the domain's part is its own. So a thread of nice 19
 * beside one of 0 gets 4 % and not 1. */
static __always_inline u64 key_after(struct thread *t, u32 domain, u64 ran)
{
	u64 passes = ran * t->scale / SCALE, own = t->avt, ahead;
	struct group *g = group_at(domain);

	if (!g)
		return own + passes;
	if (!are_uneven(g, t))
		return g->avt + passes;
	if (before(own, g->avt - settings.slice))
		own = g->avt - settings.slice;
	own += passes * g->weights / t->weight;
	ahead = AHEAD_MOST_NS * t->scale / SCALE;
	return before(g->avt + passes + ahead, own) ? g->avt + passes + ahead : own;
}
