/* SPDX-License-Identifier: GPL-2.0 */
/* Who is charged for a thread, and how fast does its virtual time pass? Part of realtime.bpf.c, by its maps: domains, who is active in them, and
 * their shares, level by level. */

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

/* The weight of its active members, averaged over AVERAGED_NS: members that sleep for some us at a time must not make virtual time pass slower
 * for whoever begins to run just then. */
static u64 average_of(struct group *g, u64 now)
{
	u64 is = g->active_weight << AVERAGE_SHIFT, average = g->average, passed = now - g->averaged;

	if (passed >= AVERAGED_NS)
		average = is;
	else if (is > average)
		average += (is - average) * passed / AVERAGED_NS;
	else
		average -= (average - is) * passed / AVERAGED_NS;
	g->average = average;
	g->averaged = now;
	return average >> AVERAGE_SHIFT;
}

/* One more or one fewer runs or waits in this group: those above learn of it where it is the first or the last. */
static void count_active(u32 index, int step)
{
	struct group *g = group_at(index);

	for (int i = 0; i < DEPTH_MAX && g; i++) {
		u32 former = __sync_fetch_and_add(&g->active, step);
		struct group *above;

		if (step > 0 ? former != 0 : former != 1)
			return;
		above = group_at(g->parent);
		if (!above)
			return;
		average_of(above, bpf_ktime_get_ns());
		__sync_fetch_and_add(&above->active_weight, step > 0 ? (u64)g->weight : -(u64)g->weight);
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
		u64 weight = g->weight, all;

		if (!above || !weight)
			break;
		all = above->parent ? average_of(above, now) : WEIGHT;
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
