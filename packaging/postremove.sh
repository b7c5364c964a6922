#!/bin/sh
# After a removal, of deb (`remove`, then perhaps `purge`) and of rpm (0). Only a purge removes what vsteer has written:
# journals, recordings, and files of service levels. rpm has no purge: docs/install.md says what to remove by hand.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
fi
if [ "${1:-}" = purge ]; then
	rm -rf /etc/vsteer /var/lib/vsteer /var/lib/vsteer-record
	# Where no systemctl removed them.
	rm -f /etc/systemd/system/multi-user.target.wants/vsteer-record.service \
		/etc/systemd/system/multi-user.target.wants/vsteer-steer@*.service
fi
