#!/bin/sh
# Before a removal, of deb (`remove`) and of rpm (0). An upgrade (`upgrade`, 1) changes nothing here.
#
# A removal must not change running VMs by surprise, and without vsteer nobody could undo what it applied. So while a
# plan is applied, the package stays.
set -e

case ${1:-} in
remove | 0) ;;
*) exit 0 ;;
esac

# Root's journals alone, in the folder that the configuration names and in the usual one, because the configuration may
# have been written, or become faulty, since the plan was applied. Those of other users and of another VSTEER_STATE are
# not searched for.
unset VSTEER_STATE VSTEER_CONFIG
status=0
listed=$(/usr/bin/vsteer rollback --list 2>&1) || status=$?
if [ "$status" -eq 3 ]; then
	status=0
	listed=$(VSTEER_STATE=/var/lib/vsteer /usr/bin/vsteer --config none rollback --list 2>&1) || status=$?
fi
if [ "$status" -eq 3 ] && ! checked=$(/usr/bin/vsteer config check 2>&1); then
	printf '%s\n' "$checked" >&2
	echo "error: vsteer stays installed, because its configuration may name another folder of journals" >&2
	echo "  help: correct or remove /etc/vsteer/vsteer.toml, and remove the package again" >&2
	exit 1
fi
case $status in
3) ;; # no plan is applied
6)
	printf '%s\n' "$listed" >&2
	echo "error: vsteer stays installed, because it cannot read a journal, so a plan may be applied" >&2
	echo "  help: if you know that none is, move the file that is named above elsewhere, and remove the package again" >&2
	exit 1
	;;
12[6-9] | 1[3-9][0-9])
	# The program does not start, so it could not undo anything either.
	echo "vsteer: warning: cannot tell whether a plan is applied, because /usr/bin/vsteer does not start" >&2
	;;
*)
	printf '%s\n' "$listed" >&2
	echo "error: vsteer stays installed while a plan is applied" >&2
	echo "  help: stop what keeps VMs steered (systemctl stop 'vsteer-steer@*'; vsteer realtime disable)," >&2
	echo "        then undo every plan: vsteer rollback" >&2
	exit 1
	;;
esac

# Links of `systemctl enable` go too: disabling the template removes those of all its instances.
if command -v systemctl >/dev/null 2>&1; then
	if [ -d /run/systemd/system ]; then
		systemctl stop vsteer-record.service vsteer-serve.service 'vsteer-steer@*.service' || :
	fi
	systemctl disable vsteer-record.service vsteer-serve.service vsteer-steer@.service >/dev/null 2>&1 || :
fi
