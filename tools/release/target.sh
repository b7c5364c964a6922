#!/bin/sh
# Makes what a build for another machine type, or for an older libc, needs: headers and static libraries of libelf and
# zlib, libvirt's library, and where this toolchain has no standard library for that type, a compiler that has.
#
# All come from Debian's archive, which /etc/apt names, into a folder of their own: nothing is installed.
#
# usage: tools/release/target.sh x86_64|aarch64 FOLDER
set -eu
arch=${1:?usage: target.sh x86_64|aarch64 FOLDER}
folder=${2:?usage: target.sh x86_64|aarch64 FOLDER}
case $arch in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*) echo "error: $arch: vsteer is built for x86_64 and aarch64" >&2; exit 2 ;;
esac
command -v apt-get >/dev/null 2>&1 || { echo "error: no apt-get: a release is built on Debian or Ubuntu" >&2; exit 5; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
native=$(dpkg --print-architecture)

# A list of packages of its own, so that apt of this system knows no other machine type.
apt() { # apt ARCHITECTURE COMMAND...
	of=$folder/apt/$1
	mkdir -p "$of/lists/partial" "$of/archives/partial"
	: >>"$of/status"
	of_arch=$1
	shift
	apt-get -q -o APT::Architecture="$of_arch" -o APT::Architectures="$of_arch" -o Dir::State="$of" -o Dir::State::status="$of/status" \
		-o Dir::Cache="$of" -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}
fetch() { # fetch ARCHITECTURE INTO PACKAGE...
	[ -e "$folder/apt/$1/updated" ] || { apt "$1" update >"$folder/apt.log" 2>&1 || { cat "$folder/apt.log" >&2; exit 3; }; : >"$folder/apt/$1/updated"; }
	from=$1
	into=$2
	shift 2
	mkdir -p "$folder/debs" "$into"
	for package; do
		rm -rf "$folder/debs/new"
		mkdir "$folder/debs/new"
		(cd "$folder/debs/new" && apt "$from" download "$package") >"$folder/apt.log" 2>&1 || {
			cat "$folder/apt.log" >&2
			echo "error: the archive in /etc/apt has no package $package for $from" >&2
			exit 3
		}
		for deb in "$folder/debs/new"/*.deb; do
			dpkg-deb -x "$deb" "$into"
			dpkg-deb -f "$deb" Package Version Architecture | paste -sd' ' >>"$folder/packages"
		done
	done
}

if [ ! -e "$folder/whole" ]; then
	rm -rf "$folder/system" "$folder/rust" "$folder/packages" "$folder/include"
	fetch $debian "$folder/system" libelf-dev zlib1g-dev libvirt-dev libvirt0 libc6 libgcc-s1
	# Of /usr/include only what is asked for: zig brings the headers of the libc that it links against.
	mkdir -p "$folder/include"
	for header in libelf.h gelf.h nlist.h elfutils zlib.h zconf.h; do
		ln -s "../system/usr/include/$header" "$folder/include/$header"
	done
	if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$arch-unknown-linux-gnu/lib" ]; then
		fetch "$native" "$folder/rust" rustc-web libstd-rust-web-dev
		# The compiler's own library, and LLVM's.
		version=$(sed -n 's/^Package: rustc-web Version: \([0-9]*\.[0-9]*\).*/\1/p' "$folder/packages")
		fetch "$native" "$folder/rust" "libstd-rust-web-$version"
		driver=$(find "$folder/rust/usr/lib" -name 'librustc_driver-*.so')
		llvm=$(objdump -p "$driver" | sed -n 's/.*NEEDED *libLLVM\.so\.\([0-9]*\).*/\1/p')
		[ -z "$llvm" ] || fetch "$native" "$folder/rust" "libllvm$llvm"
		fetch $debian "$folder/rust" libstd-rust-web-dev
		libraries=$(dirname "$driver")
		printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/rust/usr/bin/rustc "$@"\n' "$libraries" "$folder" >"$folder/rustc"
		chmod +x "$folder/rustc"
	fi
	rm -rf "$folder/debs" "$folder/apt"
	: >"$folder/whole"
fi
