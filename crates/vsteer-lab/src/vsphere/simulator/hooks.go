// What the simulator lacks of a real vSphere, as far as vsteer's lab asks for it:
//
//   - sessions that end (`expire`, `expire-after N` calls), which it does by time alone and not for all calls;
//   - a user without the right to change VMs (reader, pass): it knows no rights;
//   - refusals of what a real host does not change while a VM is on (cores per socket, vCPUs, latency sensitivity);
//   - counters with a timeline, values that can be told, levels of statistics (counters.go).
//
// Lines, words apart by tabs: `expire`, `expire-after N` (-1: never), `power NAME on|off`, `rename NAME TO`, `vcpus N` (all VMs), `option NAME KEY VALUE`, `lose NAME`
// (it is not there any more). A VM is called by its name or its object's id. Each is answered by `ok` or what is wrong.
package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type hooks struct {
	sync.Mutex
	registry *simulator.Registry
	// Calls of each session; a session that is here with -1 has ended.
	calls map[string]int
	// After so many calls a session ends; -1: never.
	most int
}

func hook(model *simulator.Model) *hooks {
	h := &hooks{registry: model.Map(), calls: map[string]int{}, most: -1}
	h.registry.SessionManager().ValidLogin = func(login *types.Login) bool {
		return (login.UserName == "user" || login.UserName == "reader") && login.Password == "pass"
	}
	h.registry.Handler = h.handle
	count(h.registry)
	h.vcpus(4)
	return h
}

func (h *hooks) handle(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	switch method.Name {
	case "Login", "Logout", "RetrieveServiceContent":
		return nil, nil
	}
	if ctx.Session == nil {
		return nil, nil
	}
	h.Lock()
	key := ctx.Session.Key
	if h.calls[key] >= 0 {
		h.calls[key]++
	}
	ended := h.calls[key] < 0 || (h.most >= 0 && h.calls[key] > h.most)
	h.Unlock()
	missing := types.NoPermission{Object: &method.This, PrivilegeId: "System.View"}
	if ended {
		return nil, &types.NotAuthenticated{NoPermission: missing}
	}
	if method.Name != "ReconfigVM_Task" {
		return nil, nil
	}
	if ctx.Session.UserName == "reader" {
		missing.PrivilegeId = "VirtualMachine.Config.Settings"
		return nil, &missing
	}
	spec := method.Body.(*types.ReconfigVM_Task).Spec
	vm, _ := h.registry.Get(method.This).(*simulator.VirtualMachine)
	isOff := vm == nil || vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff
	if !isOff && (spec.NumCoresPerSocket != 0 || spec.NumCPUs != 0 || spec.LatencySensitivity != nil) {
		return nil, &types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOff,
			ExistingState:  vm.Runtime.PowerState,
		}
	}
	return nil, nil
}

func (h *hooks) vm(name string) *simulator.VirtualMachine {
	for _, e := range h.registry.All("VirtualMachine") {
		if vm := e.(*simulator.VirtualMachine); vm.Name == name || vm.Self.Value == name {
			return vm
		}
	}
	return nil
}

func (h *hooks) vcpus(n int32) {
	for _, e := range h.registry.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		vm.Config.Hardware.NumCPU, vm.Config.Hardware.NumCoresPerSocket = n, 1
		vm.Summary.Config.NumCpu = n
		a := vm.Config.CpuAllocation
		a.Reservation, a.Limit = types.NewInt64(0), types.NewInt64(-1)
		a.Shares = &types.SharesInfo{Level: types.SharesLevelNormal, Shares: 1000 * n}
	}
}

func (h *hooks) do(line string) string {
	words := strings.Split(line, "\t")
	at := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	number, _ := strconv.Atoi(at(1))
	switch words[0] {
	case "expire":
		h.Lock()
		defer h.Unlock()
		for key := range h.calls {
			h.calls[key] = -1
		}
		return "ok"
	case "expire-after":
		h.Lock()
		defer h.Unlock()
		h.most = number
		return "ok"
	case "vcpus":
		h.vcpus(int32(number))
		return "ok"
	}
	vm := h.vm(at(1))
	if vm == nil {
		return fmt.Sprintf("no VM %q", at(1))
	}
	switch words[0] {
	case "power":
		vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOff
		if at(2) == "on" {
			vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOn
		}
	case "rename":
		vm.Name, vm.Config.Name, vm.Summary.Config.Name = at(2), at(2), at(2)
	case "option":
		vm.Config.ExtraConfig = append(vm.Config.ExtraConfig, &types.OptionValue{Key: at(2), Value: at(3)})
	case "lose":
		h.registry.Remove(&simulator.Context{Map: h.registry}, vm.Self)
	default:
		return fmt.Sprintf("no line %q", words[0])
	}
	return "ok"
}
