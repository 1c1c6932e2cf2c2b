#!/bin/sh
# After the units were installed, replaced or removed: systemd is told, if it runs.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
