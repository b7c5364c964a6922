#!/bin/sh
# After a removal, of deb (`remove`, then perhaps `purge`) and of rpm (0). Only a purge removes what vsteer has written:
# journals, recordings, and /etc/vsteer: the configuration and files of service levels. rpm has no purge: docs/install.md says what to remove by hand.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
fi
if [ "${1:-}" = purge ]; then
	# A plan that another installation of vsteer has applied since the removal must stay undoable.
	open=
	for journal in /var/lib/vsteer/journal/*.journal; do
		if [ -e "$journal" ] && ! grep -qx '"rolled_back"' "$journal"; then open=$journal; fi
	done
	if [ -n "$open" ]; then
		echo "vsteer: warning: /var/lib/vsteer stays, because $open belongs to a plan that is not undone" >&2
	else
		rm -rf /var/lib/vsteer
	fi
	rm -rf /etc/vsteer /var/lib/vsteer-record
	# Where no systemctl removed them.
	rm -f /etc/systemd/system/multi-user.target.wants/vsteer-record.service \
		/etc/systemd/system/multi-user.target.wants/vsteer-serve.service \
		/etc/systemd/system/multi-user.target.wants/vsteer-steer@*.service
fi
