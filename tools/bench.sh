#!/bin/sh
# What does looking cost, and how fast are the simulator, the solver of weights and the readers of Xen's traces and esxtop's files? Measured beside
# bpftrace, perf, bare loops and xenalyze in the same run;
# exits with 1 where a promise is broken.
# Needs root (eBPF). tracefs, which bpftrace and perf want, is mounted in a mount namespace of this script's own: the
# system is not changed. `bench.sh [--json] [REPETITIONS]`
set -eu
cd "$(dirname "$0")/.."

if [ -z "${VSTEER_BENCH_OWN_MOUNTS:-}" ]; then
	exec env VSTEER_BENCH_OWN_MOUNTS=1 unshare --mount --propagation private "$0" "$@"
fi
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing

json=
repetitions=5
for word; do
	case $word in
	--json) json=--json ;;
	*) repetitions=$word ;;
	esac
done

examples=target/release/examples
# Most CPU time that one poll of 1,000 vCPU threads may take, ms.
poll_most=3
broken=0
switches=$(timeout 900 "$examples/switch_cost" $json "$repetitions") || broken=$?
[ "$broken" -le 1 ] || exit "$broken"
poll=$(timeout 120 "$examples/poll_cost" 50 1000)
poll_ms=$(echo "$poll" | sed -n 's/.*: \([0-9.]*\) ms of CPU per poll.*/\1/p')
poll_kept=true
awk "BEGIN { exit !($poll_ms <= $poll_most) }" || { poll_kept=false; broken=1; }
# Every switch recorded to disk, at whatever rate eight threads in four pairs reach.
loss_kept=true
loss=$(timeout 120 "$examples/switch_loss" 5 4) || { loss_kept=false; broken=1; }
# A line per shape.
sim_kept=true
sim=$(timeout 600 "$examples/sim_speed" "$repetitions") || { sim_kept=false; broken=1; }
# A line per size.
solve_kept=true
solve=$(timeout 120 "$examples/solve_speed" "$repetitions") || { solve_kept=false; broken=1; }
# Three domains of a real Xen, twenty seconds of them, 400 times over.
xentrace_least=20
trace=$(mktemp -d)
trap 'rm -rf "$trace"' EXIT
timeout 900 target/debug/vsteer-lab xen run scenarios/xen/traced.toml --output "$trace/run" >&2
xenalyze=$(target/debug/vsteer-lab fetch binary xen-utils-common)/usr/bin/xenalyze
xentrace=$(timeout 600 "$examples/xentrace_speed" "$trace/run/traced/host.xentrace" "$trace/long.xentrace" 400 "$xenalyze")
xentrace_times=$(echo "$xentrace" | sed -n 's/.*"parse_times_xenalyze":\([0-9.]*\).*/\1/p')
xentrace_kept=true
awk "BEGIN { exit !($xentrace_times >= $xentrace_least) }" || { xentrace_kept=false; broken=1; }

# 60,000 columns x 1,000 rows, beside a loop that splits the same bytes.
esxtop_kept=true
esxtop=$(timeout 600 "$examples/esxtop_speed" "$trace/esxtop.csv" "$repetitions") || { esxtop_kept=false; broken=1; }

# An access log of 1 GB, beside mawk.
log_kept=true
log=$(timeout 900 "$examples/log_speed" "$trace" 5600000) || { log_kept=false; broken=1; }
rm -f "$trace"/access.log*

# A folder of 100 scrapes of 1 MB, beside mawk.
scrapes_kept=true
scrapes=$(timeout 600 "$examples/scrape_speed" "$trace/scrapes" 100) || { scrapes_kept=false; broken=1; }

if [ -n "$json" ]; then
	echo "{\"switch\":$switches,\"poll\":{\"threads\":1000,\"cpu_ms\":$poll_ms,\"at_most_ms\":$poll_most,\"kept\":$poll_kept},\"record\":$loss,\"simulator\":[$(echo "$sim" | paste -sd,)],\"solver\":[$(echo "$solve" | paste -sd,)],\"xentrace\":$xentrace,\"esxtop\":$esxtop,\"log\":$log,\"scrapes\":$scrapes}"
else
	echo "Cost of a context switch, on this machine now"
	echo "$switches"
	echo
	echo "Cost of polling /proc"
	echo "$poll"
	if $poll_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "polling 1,000 vCPUs: at most $poll_most ms: $poll_ms, $verdict"
	echo
	echo "Recording every switch"
	echo "$loss"
	if $loss_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "at most 16 bytes each, at most 1 % lost at 200,000/s, counted within 0.1 % of the kernel: $verdict"
	echo
	echo "Simulator, Xen Credit in full, against a bare loop of the same shape"
	echo "$sim"
	if $sim_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "ratios: $verdict"
	echo
	echo "The best weights, against 50 plain passes over the same VMs"
	echo "$solve"
	if $solve_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "5,000 VMs with floors: at most 50 plain passes: $verdict"
	echo
	echo "A trace of Xen's, parsed (parse) and with every vCPU's account kept (account), against xenalyze on the same file"
	echo "$xentrace"
	if $xentrace_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "at least $xentrace_least times as fast to parse: $xentrace_times, $verdict"
	echo
	echo "A batch file of esxtop's, read and modelled, against a loop that splits the same bytes"
	echo "$esxtop"
	if $esxtop_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "at least 0.55 of the speed, compressed at most 1.3 times inflating plus reading, at most 200 MiB: $verdict"
	echo
	echo "An access log, against mawk that adds up its last column; compressed, against inflating it plus reading it"
	echo "$log"
	if $log_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "at most 2.5 times, at most 1.3 times: $verdict"
	echo
	echo "A folder of scrapes, against mawk that adds up their last column"
	echo "$scrapes"
	if $scrapes_kept; then verdict=kept; else verdict=BROKEN; fi
	echo "at most 3 times: $verdict"
fi
exit "$broken"
