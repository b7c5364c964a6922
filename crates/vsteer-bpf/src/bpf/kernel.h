/* SPDX-License-Identifier: GPL-2.0 */
/* The few kernel fields that the observer reads, declared here and relocated at load time (CO-RE), so that the
 * project carries no generated vmlinux.h and one object runs on every kernel with BTF. */
#ifndef VSTEER_KERNEL_H
#define VSTEER_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define KERNEL_TYPE __attribute__((preserve_access_index))

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD 0x80
#define TASK_RUNNING 0x0
#define MAX_RT_PRIO 100 /* include/linux/sched/prio.h */

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;

struct thread_info {
	u32 cpu;
} KERNEL_TYPE;

struct task_group;

struct rt_rq {
	int rt_throttled; /* its budget is used up; before 6.12 also without CONFIG_RT_GROUP_SCHED */
} KERNEL_TYPE;

struct rq {
	u64 clock;
	struct rt_rq rt;
} KERNEL_TYPE;

extern const struct rq runqueues __ksym __weak; /* per CPU */

struct cfs_rq {
	struct rq *rq;
	u64 throttled_clock_self;	/* rq clock when a quota began to hold threads of this queue; 0: holds none */
	u64 throttled_clock_self_time;	/* how long quotas held threads of this queue before that */
} KERNEL_TYPE;

struct hrtimer {
	long long _softexpires; /* CLOCK_MONOTONIC for the timers read here, ns */
	int (*function)(struct hrtimer *);
} KERNEL_TYPE;

struct cfs_bandwidth {
	struct hrtimer period_timer; /* drawn at random when the group is made, then moved on by whole periods */
} KERNEL_TYPE;

struct rt_bandwidth {
	long long rt_period; /* ns */
	struct hrtimer rt_period_timer;
} KERNEL_TYPE;

struct sched_rt_entity {
	struct sched_rt_entity *parent; /* CONFIG_RT_GROUP_SCHED: that of the task's group */
	struct rt_rq *rt_rq;		/* CONFIG_RT_GROUP_SCHED: where it is queued */
} KERNEL_TYPE;

struct task_group {
	struct rt_rq **rt_rq; /* CONFIG_RT_GROUP_SCHED */
	struct rt_bandwidth rt_bandwidth;
	struct cfs_rq **cfs_rq; /* later: struct cfs_rq __percpu *cfs_rq */
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth; /* CONFIG_CFS_BANDWIDTH */
} KERNEL_TYPE;

struct sched_entity {
	struct cfs_rq *cfs_rq;
} KERNEL_TYPE;

struct sched_info {
	u64 last_arrival; /* rq clock when the task last got a pCPU */
} KERNEL_TYPE;

struct bpf_local_storage {
} KERNEL_TYPE;

struct cpumask {
	unsigned long bits[1];
} KERNEL_TYPE;

struct sched_ext_entity {
	u32 flags;
	u32 weight; /* as cpu.weight: 100 at nice 0 */
	u64 slice;
	u64 dsq_vtime;
} KERNEL_TYPE;

typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t euid;
} KERNEL_TYPE;

struct mm_struct {
	unsigned long arg_start; /* of the command line */
	unsigned long arg_end;
} KERNEL_TYPE;

struct task_struct {
	struct thread_info thread_info;
	u32 __state;
	u32 flags;
	u32 on_cpu; /* one byte in Linux 7.3: only what is unsigned here may be of another size there */
	int pid;
	int tgid;
	char comm[16];
	int prio; /* below MAX_RT_PRIO: of a real-time class, also while it is boosted */
	bool throttled; /* since 6.18: taken off the queue because a quota ran out */
	struct sched_entity se;
	struct sched_rt_entity rt;
	struct sched_info sched_info;
	struct task_struct *group_leader;
	u64 start_boottime;
	const struct cred *cred;
	struct mm_struct *mm;
	struct task_group *sched_task_group;
	struct bpf_local_storage *bpf_storage;
	void *worker_private; /* of a thread of the kernel: its struct kthread */
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct cpumask cpus_mask; /* so that the type of `cpus_ptr` is known as a whole, which functions that take it want */
	struct sched_ext_entity scx; /* CONFIG_SCHED_CLASS_EXT */
} KERNEL_TYPE;

struct kernfs_node {
	struct kernfs_node *__parent; /* since 6.15 */
	u64 id;
} KERNEL_TYPE;

struct cgroup {
	struct kernfs_node *kn;
} KERNEL_TYPE;

/* Of the module kvm. */
struct kvm_vcpu {
	unsigned int halt_poll_ns; /* how long it polls at most before it blocks */
} KERNEL_TYPE;

struct seq_file {
} KERNEL_TYPE;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_TYPE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL_TYPE;

#endif
