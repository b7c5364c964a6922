# Stands in for qm of Proxmox VE: options of VM ID are lines of ID.conf beside this script. The file `fail` holds what a
# refused `set` prints, or `ignore`. The file `kill` holds `before` or `after`: then this script kills its caller there.
here=$(dirname "$0")
echo "$*" >>"$here/calls"
file="$here/$2.conf"
if ! [ -e "$file" ]; then
	echo "Configuration file 'nodes/pve/qemu-server/$2.conf' does not exist" >&2
	exit 2
fi
without() {
	grep -v "^$1: " "$file" >"$file.new" || true
}
case "$1" in
config) cat "$file" ;;
set)
	if [ -e "$here/fail" ]; then
		[ "$(cat "$here/fail")" = ignore ] && exit 0
		cat "$here/fail" >&2
		exit 255
	fi
	if [ "$(cat "$here/kill" 2>/dev/null)" = before ]; then
		rm "$here/kill"
		kill -9 "$PPID"
		exit 255
	fi
	if [ "$3" = --delete ]; then
		without "$4"
	else
		without "${3#--}"
		echo "${3#--}: $4" >>"$file.new"
		sort -o "$file.new" "$file.new"
	fi
	mv "$file.new" "$file"
	echo "update VM $2: -${3#--} $4"
	if [ "$(cat "$here/kill" 2>/dev/null)" = after ]; then
		rm "$here/kill"
		kill -9 "$PPID"
	fi
	;;
*) exit 255 ;;
esac
