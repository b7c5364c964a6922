#!/bin/sh
# Makes a release in target/dist/vsteer-VERSION: portable programs for x86-64 and ARM64, packages, the source, a list of
# what is in them (CycloneDX), SHA256SUMS, and with a key its signature.
#
# usage: tools/release.sh [ARCH...]    default: x86_64 aarch64
#   SIGN=FILE  a secret key of minisign: minisign -G makes one
set -eu
cd "$(dirname "$0")/.."
umask 022
native=$(uname -m)
# This machine's type comes first: packages of the other one take the names of what they need from it.
case $native in
x86_64) other=aarch64 ;;
aarch64) other=x86_64 ;;
*) echo "error: a release is built on x86_64 or aarch64, not on $native" >&2; exit 5 ;;
esac
case $# in
0) set -- "$native" "$other" ;;
1) if [ "$1" = "$native" ]; then set -- "$native"; else set -- "$native" "$other"; fi ;;
*) set -- "$native" "$other" ;;
esac
VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
out=target/dist/vsteer-$VERSION
tools=target/release-tools
began=$(date +%s)
say() { echo "release: $(($(date +%s) - began)) s: $*"; }

if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
	echo "warning: the tree has changes that are not committed; the source archive lacks them" >&2
	[ -z "${SIGN:-}" ] || { echo "error: vsteer signs no programs whose source is not in the archive: commit first" >&2; exit 7; }
fi
rm -rf "$out"
mkdir -p "$out"

# A program of another machine type is run by qemu-user: its manual pages and completions are its own.
runner() {
	if [ "$1" = "$native" ]; then return; fi
	command -v "qemu-$1-static" >/dev/null 2>&1 || { echo "error: qemu-$1-static is missing: tools/install-missing.sh release" >&2; exit 3; }
	echo "qemu-$1-static -L $PWD/$tools/$1/system"
}
debian() { if [ "$1" = aarch64 ]; then echo arm64; else echo amd64; fi; }

for arch; do runner "$arch" >/dev/null; done
for arch; do
	say "building for $arch (5 to 10 minutes)"
	tools/release/build.sh "$arch"
done
say "building for Windows, which reads files only"
tools/windows.sh --release
cp target/windows/vsteer.exe "$out/vsteer-$VERSION-x86_64-windows.exe"
rm -rf target/packages
for arch; do
	say "packages of $arch"
	run=$(runner "$arch")
	VSTEER_RUN=$run VSTEER_PROGRAMS=target/dist/$arch VSTEER_ARCH=$(debian "$arch") tools/packages.sh vsteer
	cp target/packages/*.deb target/packages/*.rpm "$out/"
	tree=$tools/vsteer-$VERSION-$arch
	rm -rf "$tree"
	mkdir -p "$tree"
	VSTEER_LIST=no VSTEER_RUN=$run VSTEER_PROGRAMS=target/dist/$arch PREFIX=/usr/local DESTDIR=$tree tools/install.sh install vsteer
	mv "$tree/usr/local"/* "$tree/"
	rm -r "$tree/usr"
	tar -C "$tools" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "${tree##*/}" |
		gzip -9n >"$out/vsteer-$VERSION-$arch-linux.tar.gz"
	rm -r "$tree"
done

say "the source, and the list of crates"
git archive --format=tar --prefix="vsteer-$VERSION/" HEAD | gzip -9n >"$out/vsteer-$VERSION.tar.gz"
[ -x "$tools/bin/cargo-cyclonedx" ] || cargo install -q --locked --version 0.5.9 --root "$tools" cargo-cyclonedx
# It writes beside each crate's description, so it works on a copy.
rm -rf "$tools/listed"
mkdir "$tools/listed"
git archive HEAD | tar -xf - -C "$tools/listed"
for crate in vsteer vsteer-serve vsteer-libvirt; do
	(cd "$tools/listed" && PATH="$OLDPWD/$tools/bin:$PATH" cargo cyclonedx -q --manifest-path "crates/$crate/Cargo.toml" --format json \
		--target x86_64-unknown-linux-gnu --override-filename bom)
done
# Paths of this machine are nobody's business.
for crate in vsteer vsteer-serve vsteer-libvirt; do
	sed "s|$PWD/$tools/listed|/vsteer|g" "$tools/listed/crates/$crate/bom.json" >"$out/$crate-$VERSION.cdx.json"
done
for arch; do cp "$tools/$arch/packages" "$out/vsteer-$VERSION-$arch.built-with"; done
rm -rf "$tools/listed"

(cd "$out" && sha256sum -- * >SHA256SUMS)
if [ -n "${SIGN:-}" ]; then
	minisign -S -s "$SIGN" -m "$out/SHA256SUMS" -t "vsteer $VERSION"
else
	echo "note: SHA256SUMS is not signed. To sign: minisign -G (once), then make release SIGN=minisign.key"
fi
say "done"
ls -l "$out"
