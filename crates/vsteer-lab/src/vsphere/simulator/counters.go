// Counters whose values can be told: govmomi's own are recorded numbers with noise, at no moment in particular, the same for every interval
// and vCPU. What it says of which counters there are, and their numbers, stays its own.
//
// Of VM number v (of its object's id) vCPU k is, in thousandths of each interval: running 200 + 10 k + v % 7, ready 50 + 5 k, of that limited 10,
// co-stopped 4, used 190 + 10 k. Its group has all that summed over vCPUs and 9 more of everything, for its other worlds. Overlap is
// not counted at all; co-stop not of vCPUs in the statistics. Statistics: of every 300 s ready of groups alone (level 1), of 1800 s groups' run,
// ready, limited and co-stop (level 2), of 7200 s and 86400 s all of that of vCPUs too (level 3).
package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	ready, used, costop, limited, overlap, run, readiness = 12, 14, 399, 400, 401, 402, 404
	utilization                                          = 388
)

type counters struct {
	*simulator.PerformanceManager
	registry *simulator.Registry
}

func count(registry *simulator.Registry) {
	for _, r := range registry.AllReference("PerformanceManager") {
		registry.Put(&counters{r.(*simulator.PerformanceManager), registry})
	}
}

// What is counted, by interval: of groups, and of vCPUs.
func counted(interval int32) (groups, vcpus []int32) {
	switch interval {
	case 20:
		all := []int32{run, ready, limited, costop, used, readiness}
		return all, all
	case 300:
		return []int32{ready}, nil
	case 1800:
		return []int32{run, ready, limited, costop}, nil
	default:
		return []int32{run, ready, limited, costop}, []int32{run, ready, limited}
	}
}

func (c *counters) QueryAvailablePerfMetric(ctx *simulator.Context, req *types.QueryAvailablePerfMetric) soap.HasFault {
	body := &methods.QueryAvailablePerfMetricBody{Res: new(types.QueryAvailablePerfMetricResponse)}
	add := func(id int32, instance string) {
		body.Res.Returnval = append(body.Res.Returnval, types.PerfMetricId{CounterId: id, Instance: instance})
	}
	switch o := c.registry.Get(req.Entity).(type) {
	case *simulator.VirtualMachine:
		groups, vcpus := counted(req.IntervalId)
		for _, id := range groups {
			add(id, "")
		}
		for k := 0; k < int(o.Config.Hardware.NumCPU); k++ {
			for _, id := range vcpus {
				add(id, strconv.Itoa(k))
			}
		}
		add(130, "scsi0:0")
	case *simulator.HostSystem:
		for k := 0; req.IntervalId == 20 && k < int(o.Hardware.CpuInfo.NumCpuThreads); k++ {
			add(utilization, strconv.Itoa(k))
		}
	default:
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.Entity})
	}
	return body
}

// Thousandths of an interval.
func share(vm, vcpu int64, id int32) int64 {
	switch id {
	case run:
		return 200 + 10*vcpu + vm%7
	case ready, readiness:
		return 50 + 5*vcpu
	case limited:
		return 10
	case costop:
		return 4
	case used:
		return 190 + 10*vcpu
	}
	return 0
}

func value(vm, vcpus int64, id types.PerfMetricId, interval int64) int64 {
	thousandths := int64(0)
	if k, err := strconv.ParseInt(id.Instance, 10, 32); err == nil {
		thousandths = share(vm, k, id.CounterId)
	} else {
		for k := int64(0); k < vcpus; k++ {
			thousandths += share(vm, k, id.CounterId)
		}
		thousandths += 9
	}
	switch id.CounterId {
	case readiness, utilization:
		return 10 * thousandths
	}
	return thousandths * interval
}

func (c *counters) QueryPerf(ctx *simulator.Context, req *types.QueryPerf) soap.HasFault {
	body := &methods.QueryPerfBody{Res: new(types.QueryPerfResponse)}
	for _, spec := range req.QuerySpec {
		interval := int64(spec.IntervalId)
		now := time.Now().Unix()
		from, to := now-180*interval, now
		if spec.StartTime != nil {
			from = max(from, spec.StartTime.Unix())
		}
		if spec.EndTime != nil {
			to = min(to, spec.EndTime.Unix())
		}
		m := &types.PerfEntityMetric{PerfEntityMetricBase: types.PerfEntityMetricBase{Entity: spec.Entity}}
		vcpus, isOn := int64(0), true
		if vm, ok := c.registry.Get(spec.Entity).(*simulator.VirtualMachine); ok {
			vcpus, isOn = int64(vm.Config.Hardware.NumCPU), vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
		}
		var ends []int64
		for end := (from/interval + 1) * interval; isOn && end <= to; end += interval {
			ends = append(ends, end)
			m.SampleInfo = append(m.SampleInfo, types.PerfSampleInfo{Timestamp: time.Unix(end, 0).UTC(), Interval: int32(interval)})
		}
		number, _ := strconv.ParseInt(spec.Entity.Value[strings.LastIndexByte(spec.Entity.Value, '-')+1:], 10, 64)
		for _, id := range spec.MetricId {
			series := &types.PerfMetricIntSeries{PerfMetricSeries: types.PerfMetricSeries{Id: id}}
			for range ends {
				series.Value = append(series.Value, value(number, vcpus, id, interval))
			}
			m.Value = append(m.Value, series)
		}
		body.Res.Returnval = append(body.Res.Returnval, m)
	}
	return body
}
