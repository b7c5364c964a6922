#!/bin/sh
# Builds vsteer.exe for Windows on x86-64, which reads files: target/windows/vsteer.exe.
#
# usage: tools/windows.sh [--release]
#   --release    small and fast, as people download it; without: quick to build, for the tests under Wine
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=x86_64-pc-windows-gnu
out=target/windows

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
	if ! command -v rustup >/dev/null 2>&1; then
		echo "error: this Rust has no standard library for $target" >&2
		echo "  help: install Rust by rustup, which can add it; Debian's is libstd-rust-dev-windows, of the same version as rustc" >&2
		exit 3
	fi
	rustup -q target add $target
fi
mkdir -p $out
case ${1:-} in
--release)
	$cargo build --profile dist --locked -p vsteer --no-default-features --target $target
	cp target/$target/dist/vsteer.exe $out/vsteer.exe
	;;
"")
	# Nobody debugs it here, and without the names it builds and links in half the time.
	CARGO_PROFILE_DEV_DEBUG=0 $cargo build --locked -q -p vsteer --no-default-features --target $target
	cp target/$target/debug/vsteer.exe $out/vsteer.exe
	;;
*)
	echo "usage: tools/windows.sh [--release]" >&2
	exit 2
	;;
esac
x86_64-w64-mingw32-gcc -shared -o $out/bcryptprimitives.dll tools/windows/bcryptprimitives.c -ladvapi32
