#!/bin/sh
# Tries the programs of a release where their users are: on an old system, and on ARM64.
#
# - The program for this machine type runs in a folder tree of Debian 11, the oldest that the archive serves, and there
#   counts a VM of this machine's QEMU by eBPF. The kernel is this machine's.
# - The program for ARM64 runs under qemu-user. It must simulate the same as this machine's does, byte for byte. The tests
#   that need no kernel (those of the model, the simulator, the weights and the advice) run as ARM64's, too.
#
# usage: sudo tools/release/try.sh      after make release; 15 minutes, of which the tests' build is most
set -eu
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || { echo "error: run it as root: it enters a folder tree and loads eBPF" >&2; exit 4; }
native=$(uname -m)
dist=target/dist
for program in mmdebstrap qemu-system-x86_64 qemu-aarch64-static; do
	command -v $program >/dev/null 2>&1 || { echo "error: $program is missing: tools/install-missing.sh test, and release" >&2; exit 3; }
done
[ -x "$dist/$native/vsteer" ] || { echo "error: no $dist/$native/vsteer: make release first" >&2; exit 3; }
work=$(mktemp -d)
vm=
finish() {
	[ -z "$vm" ] || kill "$vm" 2>/dev/null || :
	rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
failed=0
claim() { # claim TEXT COMMAND...
	text=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		echo "ok   $text"
	else
		echo "FAIL $text"
		tail -20 "$work/said" >&2
		failed=1
	fi
}

old=target/release-tools/old-system
if [ ! -e "$old/made" ]; then
	echo "making a folder tree of Debian 11 (2 minutes)"
	rm -rf "$old"
	mirror=$(sed -n 's/^URIs: *//p; s/^deb *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -1)
	mmdebstrap -q --variant=minbase bullseye "$old" "$mirror"
	: >"$old/made"
fi
install -m 755 "$dist/$native/vsteer" "$old/usr/bin/vsteer"
cp scenarios/noisy-neighbour.toml "$old/root/"
# A mount namespace of its own: nothing stays mounted.
inside() {
	# shellcheck disable=SC2016 # the inner shell's
	unshare -m sh -c 'old=$1; shift; mount --rbind /proc "$old/proc" && mount --rbind /sys "$old/sys" && exec chroot "$old" "$@"' sh "$old" "$@"
}
# A boot sector that halts until the next interrupt, again and again.
{ printf '\364\353\375'; head -c 507 /dev/zero; printf '\125\252'; head -c 65024 /dev/zero; } >"$work/disk"
qemu-system-x86_64 -accel tcg -name tried,debug-threads=on -m 32 -nodefaults -display none -drive "file=$work/disk,format=raw" &
vm=$!
sleep 1
glibc=$(inside ldd --version | sed -n '1s/.* //p')
claim "$native: it runs with glibc $glibc" inside vsteer --version
claim "$native: it simulates there" inside vsteer simulate /root/noisy-neighbour.toml
# shellcheck disable=SC2016
claim "$native: it counts a VM there by eBPF" inside sh -c \
	'vsteer --config none record --collector ebpf --for 2s -o /root/tried.vsteer && vsteer replay /root/tried.vsteer | grep -q tried; s=$?; rm -f /root/tried.vsteer; exit $s'

arm=$dist/aarch64/vsteer
if [ "$native" = x86_64 ] && [ -x "$arm" ]; then
	run="qemu-aarch64-static -L $PWD/target/release-tools/aarch64/system"
	# shellcheck disable=SC2086 # a program and its options
	claim "aarch64: it runs" $run "$arm" --version
	# shellcheck disable=SC2016
	claim "aarch64: it simulates the same as here" sh -c '"$1" simulate "$2" --json >"$3/here"; shift 3; "$@" | cmp - "$0"' \
		"$work/here" "$dist/$native/vsteer" scenarios/noisy-neighbour.toml "$work" \
		$run "$arm" simulate scenarios/noisy-neighbour.toml --json
	echo "building the tests for ARM64 (10 minutes)"
	claim "aarch64: the tests that need no kernel pass" tools/release/build.sh aarch64 test "$run"
	sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$work/said" | awk '{ n += $1 } END { print n " tests passed" }'
fi
exit $failed
