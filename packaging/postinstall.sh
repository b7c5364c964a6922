#!/bin/sh
# After an install or an upgrade, of deb (`configure OLD-VERSION`) and of rpm (how many versions are now installed).
# Nothing is enabled or started. After an upgrade, a unit that runs gets the new program. A removal that was refused
# (`abort-remove`) restarts nothing: that would set weights back for a moment, and rotate recordings.
set -e

upgraded=
case ${1:-} in
configure) [ -z "${2:-}" ] || upgraded=yes ;;
[2-9]* | 1[0-9]*) upgraded=yes ;;
esac
case ${1:-} in
configure | abort-upgrade | abort-remove | abort-deconfigure | [0-9]*) ;;
*) exit 0 ;;
esac

# The group that may read what the service answers. Without this program (a container) only root can.
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers vsteer.conf || :
fi
# The folder of the undo journals. Without this program (a container) vsteer makes the folder when it needs it.
if command -v systemd-tmpfiles >/dev/null 2>&1; then
	systemd-tmpfiles --create vsteer.conf || :
fi
# A unit that does not start again must not leave the package half installed: systemctl status shows why.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	[ -z "$upgraded" ] || systemctl try-restart vsteer-record.service vsteer-serve.service 'vsteer-steer@*.service' || :
fi
