#!/bin/sh
# Runs libFuzzer on every fuzz target, one after another, and prints one line for each. Fails if a target crashes, needs
# more than 512 MiB, or takes more than 5 s for one input. CONTRIBUTING.md describes the targets.
#
# usage: tools/fuzz.sh [TARGET...]
#   FUZZ_SECONDS=N  seconds for each target [default: 600, unless FUZZ_RUNS is set]
#   FUZZ_RUNS=N     runs for each target
#
# The compiler's flags are those of cargo-fuzz without a sanitizer, so a stable compiler takes them. The code is safe
# Rust: a panic, a hang or too much memory is what there is to find.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
host=${HOST:-$(rustc -vV | sed -n 's/^host: //p')}
built=target/fuzz/$host/fuzz
found=target/fuzz/found
if [ -n "${FUZZ_RUNS:-}" ]; then
	limit=-runs=$FUZZ_RUNS
else
	limit=-max_total_time=${FUZZ_SECONDS:-600}
fi

flags="-Cpasses=sancov-module --cfg fuzzing"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
	flags="$flags -Cllvm-args=-sanitizer-coverage-$flag"
done
flags="$flags -Cllvm-args=-simplifycfg-branch-fold-threshold=0"
RUSTFLAGS="$flags" $cargo build --locked -q --profile fuzz -p vsteer-fuzz --features libfuzzer \
	--target "$host" --target-dir target/fuzz

mkdir -p "$found"
targets=$(VSTEER_FUZZ_SEEDS=target/fuzz/seeds "$built/fuzz")

# Names of fields and words of the seeds: without them, no random bytes become an optional field of a JSON text.
names=target/fuzz/names.dict
{
	grep -rhoE '^ +(pub )?[a-z][a-z_0-9]+:' crates/*/src --include=*.rs | sed -E 's/^ +(pub )?//; s/:$//'
	grep -rahoE '"[a-z_]{3,}"' target/fuzz/seeds | tr -d '"'
} | sort -u | sed 's/.*/"\\"&\\""/' >"$names"

printf '%-16s %10s %8s %8s %14s %8s\n' target runs runs/s edges 'new in last 1/4' MiB
status=0
for target in ${*:-$targets}; do
	corpus=target/fuzz/corpus/$target
	log=target/fuzz/$target.log
	mkdir -p "$corpus"
	ended=0
	dictionary=$names
	if ! grep -qsE '^[{[]' "target/fuzz/seeds/$target"/*; then
		# Words of its own seeds.
		dictionary=target/fuzz/words.dict
		grep -ahoE '[A-Za-z%][A-Za-z0-9_% .-]{2,30}' "target/fuzz/seeds/$target"/* | sort -u | sed 's/.*/"&"/' >"$dictionary" || true
	fi
	option=
	[ ! -s "$dictionary" ] || option=-dict=$dictionary
	VSTEER_FUZZ=$target "$built/fuzz" "$corpus" "target/fuzz/seeds/$target" $option $limit -rss_limit_mb=512 -timeout=5 \
		-print_final_stats=1 -artifact_prefix="$found/$target-" >"$log" 2>&1 || ended=$?
	# Lines of libFuzzer: `#RUNS EVENT cov: EDGES ft: ...`, and `stat::NAME: VALUE` at the end.
	awk -v target="$target" '
		$1 ~ /^#[0-9]+$/ && $3 == "cov:" { run[++n] = substr($1, 2) + 0; edges[n] = $4 }
		$1 == "stat::number_of_executed_units:" { runs = $2 }
		$1 == "stat::average_exec_per_sec:" { rate = $2 }
		$1 == "stat::peak_rss_mb:" { memory = $2 }
		END {
			for (i = 1; i <= n && run[i] <= 0.75 * runs; i++) before = edges[i]
			share = edges[n] > 0 ? 100 * (edges[n] - before) / edges[n] : 0
			printf "%-16s %10d %8d %8d %13.2f %% %8d\n", target, runs, rate, edges[n], share, memory
		}' "$log"
	if [ "$ended" -ne 0 ]; then
		status=1
		echo "$target failed: see $log; the input is in $found/" >&2
		grep -E "panicked|ERROR|SUMMARY" "$log" | head -5 >&2 || true
	fi
done
exit $status
