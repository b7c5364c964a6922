/* SPDX-License-Identifier: GPL-2.0 */
/* What a policy of sched_ext needs of the kernel, declared here and relocated at load time, for Linux 6.18 to 7.3.
 *
 * Source: kernel/sched/ext.c and ext_internal.h of Linux 6.18; kfuncs that changed their form since (7.0: insertion by
 * vtime takes a structure, insertion tells whether it was done; 7.1: moving to the local queue takes flags) are declared in
 * both forms, of which a kernel has one. */
#ifndef VSTEER_SCX_H
#define VSTEER_SCX_H

#include "kernel.h"

/* enum scx_dsq_id_flags, scx_enq_flags, scx_deq_flags, scx_kick_flags: fixed, for programs are compiled with them. */
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_LOCAL_ON 0xC000000000000000ULL
#define SCX_ENQ_WAKEUP 1ULL
#define SCX_ENQ_HEAD 0x10000ULL
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_DEQ_SLEEP 1ULL
#define SCX_TASK_QUEUED 1 /* of sched_ext_entity.flags */
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL
#define SCX_OPS_ENQ_LAST 2ULL
#define SCX_OPS_ENQ_EXITING 4ULL
#define SCX_OPS_ENQ_MIGRATION_DISABLED 16ULL

/* kernel/kthread.c */
struct kthread {
	unsigned long flags;
} KERNEL_TYPE;

#define KTHREAD_IS_PER_CPU 1 /* bit 0 of them */

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
} KERNEL_TYPE;

struct scx_exit_task_args {
	bool cancelled;
} KERNEL_TYPE;

struct scx_cgroup_init_args {
	u32 weight; /* 1 to 10000, 100 by default */
	u64 bw_period_us;
	u64 bw_quota_us; /* all ones: none */
	u64 bw_burst_us;
} KERNEL_TYPE;

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	long long exit_code;
	const char *reason;
	char *msg;
} KERNEL_TYPE;

/* The callbacks that the policy has; the kernel's own structure has more. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*runnable)(struct task_struct *, u64);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*quiescent)(struct task_struct *, u64);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
	s32 (*cgroup_init)(struct cgroup *, struct scx_cgroup_init_args *);
	void (*cgroup_exit)(struct cgroup *);
	void (*cgroup_move)(struct task_struct *, struct cgroup *, struct cgroup *);
	void (*cgroup_set_weight)(struct cgroup *, u32);
	void (*cgroup_set_bandwidth)(struct cgroup *, u64, u64, u64);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

/* Of bpf_for, whose body is checked once and not for each turn. */
struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __weak __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __weak __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __weak __ksym;

extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __weak __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __weak __ksym;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __weak __ksym;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __weak __ksym;
extern bool scx_bpf_task_running(const struct task_struct *p) __weak __ksym;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __weak __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __weak __ksym;
extern void bpf_task_release(struct task_struct *p) __weak __ksym;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __weak __ksym;
extern bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __weak __ksym;
extern void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __weak __ksym;
extern void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __weak __ksym;
extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __weak __ksym;
extern void scx_bpf_exit_bstr(long long code, char *fmt, unsigned long long *data, u32 data__sz) __weak __ksym;

/* Forms that changed. libbpf takes what follows the last three underscores for a name of our own and looks for the rest. */
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __weak __ksym;
extern bool scx_bpf_dsq_insert___v2___here(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __weak __ksym;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __weak __ksym;

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

extern bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __weak __ksym;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __weak __ksym;
extern bool scx_bpf_dsq_move_to_local___v2___here(u64 dsq_id, u64 enq_flags) __weak __ksym;
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __weak __ksym;

static __always_inline void insert(struct task_struct *p, u64 queue, u64 slice, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___here))
		scx_bpf_dsq_insert___v2___here(p, queue, slice, flags);
	else
		scx_bpf_dsq_insert(p, queue, slice, flags);
}

static __always_inline void insert_vtime(struct task_struct *p, u64 queue, u64 slice, u64 vtime, u64 flags)
{
	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = queue, .slice = slice, .vtime = vtime, .enq_flags = flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else {
		scx_bpf_dsq_insert_vtime(p, queue, slice, vtime, flags);
	}
}

static __always_inline bool move_to_local(u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___here))
		return scx_bpf_dsq_move_to_local___v2___here(queue, 0);
	return scx_bpf_dsq_move_to_local(queue);
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

#endif
