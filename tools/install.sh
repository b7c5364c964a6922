#!/bin/sh
# Puts what cargo has built into a folder tree, for `make install` and for packages: one place says what goes where.
#
# usage: tools/install.sh install vsteer|vsteer-display|vsteer-lab
#        tools/install.sh uninstall
#
# The configuration is /etc/vsteer/vsteer.toml whatever PREFIX is. An install makes it only where there is none, and an
# uninstall removes it only as it was made.
#
# PREFIX (/usr/local) goes into the unit files too. DESTDIR goes before every path and into no file. Programs come from
# cargo's release folder, or from VSTEER_PROGRAMS; VSTEER_RUN runs programs of another machine type. The list
# PREFIX/share/vsteer/installed names what uninstall removes.
set -eu
cd "$(dirname "$0")/.."
what=${1:?usage: install.sh install NAME, or install.sh uninstall}
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
programs=${VSTEER_PROGRAMS:-${CARGO_TARGET_DIR:-target}/release}
list=$PREFIX/share/vsteer/installed
config=/etc/vsteer/vsteer.toml

case $PREFIX in
*[!A-Za-z0-9/._+-]* | *..*) echo "error: PREFIX may hold letters, digits and /._+- only: $PREFIX" >&2; exit 2 ;;
/*) ;;
*) echo "error: PREFIX must begin with /: $PREFIX" >&2; exit 2 ;;
esac

if [ "$what" = uninstall ]; then
	[ -f "$DESTDIR$list" ] || { echo "error: nothing to uninstall: $DESTDIR$list does not exist" >&2; exit 3; }
	vsteer=$DESTDIR$PREFIX/bin/vsteer
	# As a package does: without vsteer nobody could undo what it applied.
	if [ -z "$DESTDIR" ] && [ -x "$vsteer" ]; then
		status=0
		unset VSTEER_STATE VSTEER_CONFIG
		"$vsteer" rollback --list || status=$?
		case $status in
		3) ;; # no plan is applied
		12[6-9] | 1[3-9][0-9]) echo "warning: cannot tell whether a plan is applied, because $vsteer does not start" >&2 ;;
		*) echo "error: a plan is applied; undo it first: vsteer rollback" >&2; exit 1 ;;
		esac
	fi
	# Before its copy goes. One that differs stays: somebody changed it.
	if grep -qxF "$config" "$DESTDIR$list" && [ -e "$DESTDIR$config" ]; then
		if cmp -s "$DESTDIR$config" "$DESTDIR$PREFIX/share/vsteer/vsteer.toml"; then
			rm -f "$DESTDIR$config"
			rmdir "$DESTDIR${config%/*}" 2>/dev/null || :
		else
			echo "$config stays, because it is not as it was installed"
		fi
	fi
	while read -r file; do
		case $file in
		*..*) ;;
		"$PREFIX"/*)
			rm -f "$DESTDIR$file"
			folder=${file%/*}
			while [ "$folder" != "$PREFIX" ] && rmdir "$DESTDIR$folder" 2>/dev/null; do folder=${folder%/*}; done
			;;
		esac
	done <"$DESTDIR$list"
	echo "removed. If a unit of vsteer was enabled: systemctl disable --now vsteer-record; systemctl daemon-reload"
	echo "Journals and recordings stay in /var/lib/vsteer and /var/lib/vsteer-record"
	exit 0
fi

name=${2:?usage: install.sh install NAME}
doc=$PREFIX/share/doc/$name
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/list"

put() { # put MODE FILE PLACE: one file
	install -D -m "$1" "$2" "$DESTDIR$3"
	echo "$3" >>"$work/list"
}
program() { # program NAME [FOLDER]: without debug information, which is most of its bytes
	if readelf -SW "$programs/$1" | grep -q ' \.symtab '; then
		strip -o "$work/stripped" "$programs/$1"
	else
		cp "$programs/$1" "$work/stripped"
	fi
	put 755 "$work/stripped" "$PREFIX/${2:-bin}/$1"
}
unit() { # unit FILE FOLDER: with this PREFIX
	sed "s|/usr/bin/|$PREFIX/bin/|g; s|/usr/share/|$PREFIX/share/|g" "packaging/$1" >"$work/unit"
	put 644 "$work/unit" "$PREFIX/lib/$2"
}

[ -x "$programs/$name" ] || {
	echo "error: $programs/$name is not built" >&2
	echo "  help: make build-release" >&2
	exit 3
}
case $name in
vsteer)
	program vsteer
	# It asks libvirt. vsteer itself works without it.
	if [ -x "$programs/vsteer-libvirt" ]; then
		program vsteer-libvirt
	else
		echo "note: vsteer-libvirt is not built, so vsteer will see libvirt's VMs as processes" >&2
	fi
	program vsteer-serve
	# shellcheck disable=SC2086 # a program and its options
	serve() { ${VSTEER_RUN:-} "$programs/vsteer-serve" --config none --print "$1"; }
	serve man | gzip -9n >"$work/serve.1.gz"
	put 644 "$work/serve.1.gz" "$PREFIX/share/man/man1/vsteer-serve.1.gz"
	for shell in bash zsh fish; do serve $shell >"$work/$shell"; done
	put 644 "$work/bash" "$PREFIX/share/bash-completion/completions/vsteer-serve"
	put 644 "$work/zsh" "$PREFIX/share/zsh/site-functions/_vsteer-serve"
	put 644 "$work/fish" "$PREFIX/share/fish/vendor_completions.d/vsteer-serve.fish"
	vsteer() {
		# shellcheck disable=SC2086 # a program and its options
		${VSTEER_RUN:-} "$programs/vsteer" "$@"
	}
	vsteer man "$work/man"
	for page in "$work"/man/*.1; do
		gzip -9n "$page"
		put 644 "$page.gz" "$PREFIX/share/man/man1/${page##*/}.gz"
	done
	gzip -9n "$work/man/vsteer.toml.5"
	put 644 "$work/man/vsteer.toml.5.gz" "$PREFIX/share/man/man5/vsteer.toml.5.gz"
	for shell in bash zsh fish; do vsteer completions $shell >"$work/$shell"; done
	put 644 "$work/bash" "$PREFIX/share/bash-completion/completions/vsteer"
	put 644 "$work/zsh" "$PREFIX/share/zsh/site-functions/_vsteer"
	put 644 "$work/fish" "$PREFIX/share/fish/vendor_completions.d/vsteer.fish"
	# Packages have a configuration file of their own, which dpkg and rpm keep.
	if [ "${VSTEER_LIST:-yes}" = yes ]; then
		put 644 packaging/vsteer.toml "$PREFIX/share/vsteer/vsteer.toml"
		if [ -e "$DESTDIR$config" ]; then
			echo "note: $config is there already, and stays as it is" >&2
		else
			put 644 packaging/vsteer.toml "$config"
		fi
	fi
	unit vsteer-record.service systemd/system/vsteer-record.service
	for file in prometheus/vsteer.rules.yml grafana/vsteer-host.json grafana/vsteer-vm.json; do
		put 644 "packaging/$file" "$PREFIX/share/vsteer/$file"
	done
	unit vsteer-serve.service systemd/system/vsteer-serve.service
	unit vsteer-steer@.service systemd/system/vsteer-steer@.service
	unit sysusers.conf sysusers.d/vsteer.conf
	unit tmpfiles.conf tmpfiles.d/vsteer.conf
	for file in README.md CHANGELOG.md SECURITY.md SPEC.md ARCHITECTURE.md CONTRIBUTING.md; do put 644 "$file" "$doc/$file"; done
	# With the folders of the source, so that links between pages lead somewhere.
	find docs -type f \( -name '*.md' -o -name '*.svg' \) | LC_ALL=C sort >"$work/docs"
	while read -r file; do put 644 "$file" "$doc/$file"; done <"$work/docs"
	;;
vsteer-display)
	program vsteer-display
	put 644 docs/display.md "$doc/display.md"
	;;
vsteer-lab)
	program vsteer-lab
	# The lab looks for it there. It is static, and runs as the first process of the lab's VMs.
	guest=${VSTEER_GUEST_PROGRAM:-${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/release/vsteer-guest}
	strip -o "$work/guest" "$guest"
	put 755 "$work/guest" "$PREFIX/libexec/vsteer-guest"
	put 644 crates/vsteer-lab/README.md "$doc/README.md"
	;;
*) echo "error: no package is called $name" >&2; exit 2 ;;
esac
for file in LICENSE-MIT LICENSE-APACHE; do put 644 $file "$doc/$file"; done
put 644 crates/vsteer-bpf/LICENSE-GPL-2.0 "$doc/LICENSE-GPL-2.0"
if [ "${VSTEER_LIST:-yes}" = yes ]; then
	mkdir -p "$DESTDIR${list%/*}"
	echo "$list" >>"$work/list"
	# A second install adds to the first one's list.
	[ ! -f "$DESTDIR$list" ] || cat "$DESTDIR$list" >>"$work/list"
	LC_ALL=C sort -u "$work/list" >"$work/sorted"
	install -m 644 "$work/sorted" "$DESTDIR$list"
	echo "installed $name in $DESTDIR$PREFIX: $(wc -l <"$work/sorted") files; to remove them: make uninstall PREFIX=$PREFIX"
fi
