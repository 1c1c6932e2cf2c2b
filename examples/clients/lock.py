#!/usr/bin/env python3
"""lock.py KEY CMD [ARG...]: run a command under a lock of `leasehold serve`.

Ends with the command's code, with 75 if another holds the lock, and with 76 if the lease was lost: then the
command was killed first. If it cannot ask, the command does not run: 64 if the request is wrong, 77 if it is not
allowed, 69 if the server or its store fails. LEASEHOLD_SERVE is where to ask, LEASEHOLD_WAIT and LEASEHOLD_TTL are
durations."""
import http.client
import json
import os
import secrets
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

BASE = os.environ.get("LEASEHOLD_SERVE", "http://127.0.0.1:4041")
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # which goes on while the machine is suspended


def ask(method, path, body=None, timeout=None):
    """The status and the answer."""
    data, headers = json.dumps(body or {}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(BASE + path, method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"{}")


def keep(lease, left, lost):
    """Sends a keepalive each quarter of what is left, and calls lost before the lease is over."""
    until = time.clock_gettime(CLOCK) + left
    while True:
        sent = time.clock_gettime(CLOCK)
        try:
            status, answer = ask("POST", f"/v1/leases/{lease}/keepalive", timeout=max((until - sent) / 2, 0.05))
            if status in (404, 410):
                return lost(answer["detail"])
            if status == 200:
                left = answer["left_ms"] / 1000
                until = sent + left  # counted from the moment in which it was asked
        except OSError as failed:  # perhaps it answers next time
            print(f"lock.py: {failed}", file=sys.stderr)
        if until - time.clock_gettime(CLOCK) < left / 3:
            return lost("no keepalive was answered in time")
        time.sleep(left / 4)


def refused(status):
    """The exit code for a status that is not 200: only of a lock that is held is it 75."""
    if status == 409:
        return 75
    if status in (401, 403, 421):
        return 77
    return 64 if 400 <= status < 500 and status not in (408, 410, 429) else 69


key, command = sys.argv[1], sys.argv[2:]
wants = {
    "id": secrets.token_hex(16), "wait": os.environ.get("LEASEHOLD_WAIT", "30s"),
    "ttl": os.environ.get("LEASEHOLD_TTL", "10s"), "holder": f"python/{os.getpid()}"}
for pause in (1, 1, 0):
    try:
        status, lease = ask("POST", f"/v1/locks/{key}/acquire", wants)
        break
    except (OSError, ValueError, http.client.HTTPException) as failed:  # no server, or the answer was lost
        status, lease = 503, {"detail": str(failed)}
        time.sleep(pause)  # with the same id, the next request gets the lease of this one
if status != 200:
    print("lock.py:", lease.get("detail", status), file=sys.stderr)
    sys.exit(refused(status))
child = subprocess.Popen(command, env={**os.environ, "LEASEHOLD_TOKEN": str(lease["token"])})


def end(why):
    """Kills the command, and ends; unless it has ended, and the lease is being released."""
    if child.returncode is None:
        child.kill()
        print("lock.py: the lease is lost:", why, file=sys.stderr)
        os._exit(76)


threading.Thread(target=keep, args=(lease["lease"], lease["left_ms"] / 1000, end), daemon=True).start()
code = child.wait()
try:
    ask("DELETE", f"/v1/leases/{lease['lease']}", timeout=3)
except OSError as failed:  # then the lease ends by itself
    print(f"lock.py: {failed}", file=sys.stderr)
sys.exit(code if code >= 0 else 128 - code)
