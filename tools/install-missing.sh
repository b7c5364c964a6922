#!/bin/sh
# Installs what is missing, by the system's package manager: called by the Makefile with the name of what is to be done.
# Debian and Ubuntu. With everything there it does nothing.
#
# It first lets apt say what it would do, prints that with its size, and asks on a terminal (VSTEER_YES=1 does not). It
# never removes a package: on a host with a hypervisor of its own (Proxmox) Debian's QEMU would replace that one.
set -eu

purpose=${1:?usage: install-missing.sh build|page|check|fuzz|apart|demo|lab|test|all|bench|docs|packages|release|windows}
missing=
need() { # need PROGRAM-OR-FILE PACKAGE
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac || case " $missing " in *" $2 "*) ;; *) missing="$missing $2" ;; esac
}

case $purpose in
docs | page | packages | release | test | all)
	need python3 python3
	python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
	;;
esac
# Debian's users have no /usr/sbin in their PATH, where libvirtd is.
PATH=$PATH:/usr/sbin:/sbin
multiarch=$(cc -print-multiarch 2>/dev/null || gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
need cc gcc
need make make
need clang clang
need pkg-config pkg-config
need "/usr/lib/$multiarch/libelf.a" libelf-dev
need "/usr/lib/$multiarch/libz.a" zlib1g-dev
need "/usr/lib/$multiarch/libc.a" libc6-dev
need "/usr/include/linux/bpf.h" linux-libc-dev
case $purpose in
apart | demo | lab | test | all | bench | packages) # vsteer-libvirt
	need "/usr/include/libvirt/libvirt.h" libvirt-dev
	;;
esac
case $purpose in
apart | lab | test | all | bench | packages) # vsteer-display
	for library in avcodec avformat avutil swscale; do
		need "/usr/include/$multiarch/lib$library/$library.h" "lib$library-dev"
	done
	;;
esac
as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
refreshed=
refresh() { # the list of packages, once
	[ -z "$refreshed" ] || return 0
	refreshed=yes
	[ -z "$as_root" ] || command -v sudo >/dev/null 2>&1 || { echo "run as root: packages are missing and there is no sudo" >&2; exit 4; }
	$as_root apt-get update -q
}

# Debian's stable cargo is too old; its security suite carries a current one for browsers.
if cargo=$(command -v cargo); then
	case $(dpkg -S "$cargo" 2>/dev/null) in
	cargo-web*) suite=web ;;
	?*) suite=stable ;;
	*) suite=none ;; # somebody's own toolchain: nothing of Debian's beside it
	esac
else
	# A bare machine has no list of packages to look into.
	apt-cache show cargo >/dev/null 2>&1 || refresh
	if apt-cache show cargo-web >/dev/null 2>&1; then suite=web; else suite=stable; fi
fi
rust() { # rust PROGRAM STABLE-PACKAGE WEB-PACKAGE
	case $suite in
	web) need "$1" "$3" ;;
	stable) need "$1" "$2" ;;
	none) command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: rustup component add rustfmt clippy" >&2; exit 4; } ;;
	esac
}
rust cargo cargo cargo-web
rust rustc rustc rustc-web
case $purpose in
check | test | all)
	rust cargo-fmt rustfmt rustfmt-web
	rust cargo-clippy rust-clippy rust-web-clippy
	;;
esac
case $purpose in
demo | lab | test | all)
	need strip binutils
	need xz xz-utils
	need qemu-system-x86_64 qemu-system-x86
	need libvirtd libvirt-daemon
	need "/usr/lib/$multiarch/libvirt/connection-driver/libvirt_driver_qemu.so" libvirt-daemon-driver-qemu
	need virsh libvirt-clients
	need dpkg-deb dpkg
	;;
esac
case $purpose in
lab | test | all)
	need Xtigervnc tigervnc-standalone-server
	;;
esac
case $purpose in
lab | all) # real servers of remote displays, beyond the one of every test
	gstreamer="/usr/lib/$multiarch/gstreamer-1.0"
	need Xvfb xvfb
	# QEMU's SPICE server: a package of its own from Debian 13 on, before that it comes with QEMU.
	spice="/usr/lib/$multiarch/qemu/ui-spice-core.so"
	if [ ! -e "$spice" ]; then
		apt-cache show qemu-system-x86 >/dev/null 2>&1 || refresh
		if apt-cache show qemu-system-modules-spice >/dev/null 2>&1; then
			need "$spice" qemu-system-modules-spice
		else
			need "$spice" qemu-system-common
		fi
	fi
	need freerdp-shadow-cli freerdp2-shadow-x11
	need xfreerdp freerdp2-x11
	need gst-launch-1.0 gstreamer1.0-tools
	need "$gstreamer/libgstximagesink.so" gstreamer1.0-x
	need "$gstreamer/libgstximagesrc.so" gstreamer1.0-plugins-good
	need "$gstreamer/libgstx264.so" gstreamer1.0-plugins-ugly
	need "$gstreamer/libgstlibav.so" gstreamer1.0-libav
	;;
esac
case $purpose in
test | all)
	need lstopo hwloc
	need cpio cpio
	need zsh zsh
	need fish fish
	need systemd-analyze systemd
	need bzip2 bzip2
	need xz xz-utils
	need dpkg-source dpkg-dev
	need chromium chromium
	need prometheus prometheus
	need prometheus-alertmanager prometheus-alertmanager
	;;
esac
case $purpose in
fuzz | test | all)
	need c++ g++ # libFuzzer
	;;
esac
case $purpose in
all)
	need mplayer mplayer
	need ffmpeg ffmpeg
	need prometheus-libvirt-exporter prometheus-libvirt-exporter
	;;
esac
case $purpose in
test | all)
	need mmdebstrap mmdebstrap # a Debian host with systemd
	need mke2fs e2fsprogs
	need ssh openssh-client
	;;
esac
case $purpose in
packages | release | test | all)
	need strip binutils
	need dpkg-shlibdeps dpkg-dev
	;;
esac
case $purpose in
windows | release | test | all)
	need x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64
	;;
esac
case $purpose in
test | all)
	need /usr/lib/wine/wine64 wine64 # runs the program for Windows
	;;
esac
case $purpose in
release)
	need qemu-aarch64-static qemu-user-static # runs the programs for ARM64
	need minisign minisign
	;;
esac
case $purpose in
lab | test | all | bench)
	need perf linux-perf
	;;
esac
case $purpose in
bench)
	need bpftrace bpftrace
	need unshare util-linux
	;;
esac

[ -n "$missing" ] || exit 0
refresh
# shellcheck disable=SC2086 # one word per package
would=$(LC_ALL=C apt-get install -s -q --no-install-recommends $missing 2>&1) || {
	printf '%s\n' "$would" | grep '^E:' >&2 || printf '%s\n' "$would" >&2
	echo "error: apt cannot install$missing" >&2
	exit 3
}
removed=$(printf '%s\n' "$would" | sed -n 's/^Remv \([^ ]*\).*/ \1/p' | tr -d '\n')
if [ -n "$removed" ]; then
	echo "error: to install$missing, apt would remove$removed" >&2
	echo "  help: this host may have a hypervisor of its own. Install by hand what fits it, and run this again;" >&2
	echo "        or build only the main tool: tools/install-missing.sh build && cargo build --locked" >&2
	exit 4
fi
count=$(printf '%s\n' "$would" | grep -c '^Inst ' || :)
if [ "$count" -eq 0 ]; then
	echo "warning: apt has installed$missing, and a program or file of it is not found" >&2
	exit 0
fi
# shellcheck disable=SC2086
bytes=$(LC_ALL=C apt-get install -qq --print-uris --no-install-recommends $missing 2>/dev/null | awk '{ sum += $3 } END { print sum + 0 }')
echo "to install, by apt-get:$missing"
echo "with what these need: $count packages, $(((bytes + 999999) / 1000000)) MB to fetch; nothing is removed"
if [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}${VSTEER_YES:-}" ]; then
	printf 'Install them? [Y/n] '
	read -r answer || answer=n
	case $answer in
	"" | [Yy]*) ;;
	*) exit 4 ;;
	esac
fi
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends --no-remove $missing
