#!/bin/sh
# lock.sh KEY CMD [ARG...]: run a command under a lock of `leasehold serve`, with curl.
#
# Ends with the command's code, with 75 if another holds the lock, and with 76 if the lease was lost: then the
# command was killed first. If it cannot ask, the command does not run: 64 if the request is wrong, 77 if it is not
# allowed, 69 if the server or its store fails. LEASEHOLD_SERVE is where to ask, LEASEHOLD_WAIT and LEASEHOLD_TTL are
# durations.
base=${LEASEHOLD_SERVE:-http://127.0.0.1:4041}
key=$1
shift

# quoted TEXT: as a file of curl's options wants it.
quoted() { printf '%s' "$1" | tr -d '\r\n' | sed 's/[\\"]/\\&/g'; }

# ask METHOD PATH BODY [OPTION...]: the answer, and on a line of its own the status. Path and body have the lease's ID, a
# secret, so curl gets them on stdin: all users of a machine see the arguments of commands.
ask() {
	method=$1 path=$2 body=$3
	shift 3
	curl -sS -X "$method" -H 'Content-Type: application/json' -w '\n%{http_code}\n' "$@" -K - <<-END
		url = "$(quoted "$base$path")"
		data = "$(quoted "$body")"
	END
}

# member NAME: the text or number of a member of the answer.
member() { printf '%s\n' "$answer" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" | head -n 1; }

id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
wants="{\"id\":\"$id\",\"wait\":\"${LEASEHOLD_WAIT:-30s}\",\"ttl\":\"${LEASEHOLD_TTL:-10s}\",\"holder\":\"sh/$$\"}"
for pause in 1 1 0; do
	answer=$(ask POST "/v1/locks/$key/acquire" "$wants") && break # else no server, or the answer was lost
	sleep "$pause"                                                # with the same id, the next request gets the lease of this one
done
status=$(printf '%s\n' "$answer" | tail -n 1)
if [ "$status" != 200 ]; then
	echo "lock.sh: $(member detail) ($status)" >&2
	case $status in # only of a lock that is held is it 75
	409) exit 75 ;;
	401 | 403 | 421) exit 77 ;;
	408 | 410 | 429) exit 69 ;;
	4??) exit 64 ;;
	*) exit 69 ;; # 000: nobody answers
	esac
fi
lease=$(member lease) left=$(member left_ms) LEASEHOLD_TOKEN=$(member token)
export LEASEHOLD_TOKEN

"$@" &
child=$!

# A keepalive is sent each quarter of what is left, may take a quarter, and is sent once more if it fails: so when
# the command is killed, a quarter is left.
quarter() { echo "$((left / 4000)).$(printf '%03d' $((left / 4 % 1000)))"; }
(
	keep() { answer=$(ask POST "/v1/leases/$lease/keepalive" '{}' --max-time "$(quarter)" 2>/dev/null); }
	while { keep || keep; } && [ "$(printf '%s\n' "$answer" | tail -n 1)" = 200 ]; do
		left=$(member left_ms)
		sleep "$(quarter)" >/dev/null 2>&1 # if it outlives this, it keeps nobody waiting for the end of the output
	done
	echo "lock.sh: the lease is lost: $(member detail)" >&2
	trap '' TERM # which comes as soon as the command has ended
	kill -KILL "$child"
	exit 76
) &
keeper=$!

wait "$child"
code=$?
kill "$keeper" 2>/dev/null
wait "$keeper" 2>/dev/null
[ $? = 76 ] && exit 76
ask DELETE "/v1/leases/$lease" '{}' --max-time 3 >/dev/null
exit "$code"
