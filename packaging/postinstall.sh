#!/bin/sh
# After an install or an upgrade, of deb (`configure OLD-VERSION`) and of rpm (how many versions are now installed).
# Nothing is enabled or started. A unit that runs gets the new program.
set -e

case ${1:-} in
configure | abort-upgrade | abort-remove | abort-deconfigure | [0-9]*) ;;
*) exit 0 ;;
esac

# The folder of the undo journals. Without this program (a container) vsteer makes the folder when it needs it.
if command -v systemd-tmpfiles >/dev/null 2>&1; then
	systemd-tmpfiles --create vsteer.conf || :
fi
# A unit that does not start again must not leave the package half installed: systemctl status shows why.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	systemctl try-restart vsteer-record.service 'vsteer-steer@*.service' || :
fi
