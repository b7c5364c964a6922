#!/bin/sh
# Builds the portable programs of one machine type: target/dist/ARCH/{vsteer,vsteer-serve,vsteer-libvirt}.
#
# They run with glibc 2.17 and later (RHEL 7, Ubuntu 14.04, Domain-0 of XCP-ng), because zig links them against that
# version's symbols, whatever this system has. Folders of this machine are mapped to fixed names, so that two builds in
# two folders give the same bytes.
#
# usage: tools/release/build.sh x86_64|aarch64
#        tools/release/build.sh x86_64|aarch64 test RUNNER    the tests that need no kernel, each run by RUNNER
set -eu
cd "$(dirname "$0")/../.."
arch=${1:?usage: build.sh x86_64|aarch64}
venv=$PWD/target/venv
glibc=2.17
folder=$PWD/target/release-tools/$arch
tools/release/target.sh "$arch" "$folder"

target=$arch-unknown-linux-gnu
cargo_home=${CARGO_HOME:-$HOME/.cargo}
target_folder=$PWD/target/portable
PATH=$venv/bin:$PATH
export PATH
export CARGO_TARGET_DIR="$target_folder"
export ZIG_GLOBAL_CACHE_DIR="$PWD/target/release-tools/zig" ZIG_LOCAL_CACHE_DIR="$PWD/target/release-tools/zig"
[ ! -x "$folder/rustc" ] || export RUSTC="$folder/rustc"
sysroot=$("${RUSTC:-rustc}" --print sysroot)
maps="-ffile-prefix-map=$target_folder=/target -ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$PWD=/vsteer"
export CFLAGS="$maps"
export LIBBPF_SYS_EXTRA_CFLAGS="-I$folder/include $maps"
export LIBBPF_SYS_LIBRARY_PATH="$folder/system/usr/lib/$arch-linux-gnu"
export RUSTFLAGS="--remap-path-prefix=$target_folder=/target --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$PWD=/vsteer --remap-path-prefix=$sysroot=/rust"
# libvirt's library of that machine type; the program finds the host's own when it runs.
export PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_SYSROOT_DIR="$folder/system" PKG_CONFIG_LIBDIR="$folder/system/usr/lib/$arch-linux-gnu/pkgconfig"

if [ "${2:-}" = test ]; then
	variable=CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_RUNNER
	export "$variable=$3"
	exec cargo-zigbuild test --locked --lib -p vsteer-core -p vsteer-sim -p vsteer-sla --target "$target.$glibc"
fi

cargo zigbuild --profile dist --locked -p vsteer -p vsteer-serve -p vsteer-libvirt --target "$target.$glibc"

out=target/dist/$arch
mkdir -p "$out"
for program in vsteer vsteer-serve vsteer-libvirt; do
	cp "$target_folder/$target/dist/$program" "$out/$program"
	newest=$(objdump -p "$out/$program" | sed -n 's/.* GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -1)
	if [ "$(printf '%s\n%s\n' "$newest" "$glibc" | sort -V | tail -1)" != "$glibc" ]; then
		echo "error: $out/$program needs glibc $newest; $glibc was asked for" >&2
		exit 1
	fi
	echo "$out/$program: $(($(stat -c %s "$out/$program") / 1000)) kB, glibc $newest"
done
