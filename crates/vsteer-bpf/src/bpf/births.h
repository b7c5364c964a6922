/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads that take a vCPU's name are counted from that moment, before user space knows of them.
 *
 * A VM may live shorter than the time between two samples. So the kernel side keeps slots that user space has laid ready
 * for threads not known yet, and says in `births` which thread got which. User space decides whether that is a VM's.
 */
#ifndef VSTEER_BIRTHS_H
#define VSTEER_BIRTHS_H

/* Slots laid ready, 1-based. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, SPARES);
	__type(value, u32);
} spares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22); /* 4 MiB: some 2,000 births until they are read */
} births SEC(".maps");

/* How VMMs begin the names of vCPU threads; crates/vsteer-host/src/kvm/roles.rs has them in full. */
static __always_inline bool is_vcpus(const char *comm)
{
	u64 name = *(const u64 *)comm;
	u32 begin = name;

#define FIRST4(a, b, c, d) ((u32)(a) | (u32)(b) << 8 | (u32)(c) << 16 | (u32)(d) << 24)
#define FIRST8(a, b, c, d, e, f, g, h) ((u64)FIRST4(a, b, c, d) | (u64)FIRST4(e, f, g, h) << 32)
	return begin == FIRST4('C', 'P', 'U', ' ') || begin == FIRST4('v', 'c', 'p', 'u') ||
	       name == FIRST8('A', 'L', 'L', ' ', 'C', 'P', 'U', 's') ||
	       name == FIRST8('f', 'c', '_', 'v', 'c', 'p', 'u', ' ') ||
	       name == FIRST8('c', 'r', 'o', 's', 'v', 'm', '_', 'v') ||
	       name == FIRST8('k', 'v', 'm', '-', 'v', 'c', 'p', 'u') ||
	       (name & 0xffffffffffffffULL) == FIRST8('d', 'b', '_', 'v', 'c', 'p', 'u', 0);
}

/* Says to user space who got the slot, with the command line as far as it is in memory. */
static __always_inline void tell_birth(struct task_struct *p, u32 slot, const char *comm)
{
	struct birth *told = bpf_ringbuf_reserve(&births, sizeof(*told), 0);

	if (!told)
		return;
	told->slot = slot;
	told->tid = p->pid;
	told->tgid = p->tgid;
	told->user = BPF_CORE_READ(p, cred, euid.val);
	told->started = BPF_CORE_READ(p, group_leader, start_boottime);
	*(u64 *)&told->comm[0] = *(const u64 *)&comm[0];
	*(u64 *)&told->comm[8] = *(const u64 *)&comm[8];
	told->arguments_bytes = 0;
	/* Memory of another process cannot be read here. VMMs name their threads in these threads. */
	if (p == bpf_get_current_task_btf()) {
		u64 from = BPF_CORE_READ(p, mm, arg_start), to = BPF_CORE_READ(p, mm, arg_end);
		u64 bytes = to > from ? to - from : 0;

		if (bytes > ARGUMENTS)
			bytes = ARGUMENTS;
		barrier_var(bytes);
		if (bytes <= ARGUMENTS && !bpf_probe_read_user(told->arguments, bytes, (void *)from))
			told->arguments_bytes = bytes;
	}
	bpf_ringbuf_submit(told, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *p, const char *given)
{
	char comm[16] __attribute__((aligned(8))) = {};
	u32 slot;

	if (bpf_probe_read_kernel_str(comm, sizeof(comm), given) < 0 || !is_vcpus(comm) || slot_of(p))
		return 0;
	if (bpf_map_pop_elem(&spares, &slot))
		return 0;
	struct slot *s = slot_at(slot);
	struct thread_mark *m = bpf_task_storage_get(&marks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!s || !m) {
		bpf_map_push_elem(&spares, &slot, 0);
		return 0;
	}
	s->tid = p->pid;
	begin(s, slot, m, p);
	tell_birth(p, slot, comm);
	return 0;
}

#endif
