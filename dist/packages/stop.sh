#!/bin/sh
# Before the package is removed, and not when another version takes its place: what it has started ends. Debian says
# "remove", rpm says how many versions stay, and apk says nothing.
case "${1:-0}" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl stop 'leasehold-cron@*.timer' 'leasehold-cron@*.service' 'leasehold-elect@*.service' || true
	fi
	;;
esac
