"""leasehold.py behind the line protocol of "leasehold conformance": docs/format-testing.md says what the words mean.

    leasehold conformance --store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000' -- python3 subject.py
"""
import os, sys, threading
from leasehold import Error, Held, Lock, S3

store = S3(os.environ["CONFORMANCE_BUCKET"], os.environ["CONFORMANCE_PREFIX"])
locks, leases, lost = {}, {}, set()
one = threading.RLock()  # a line at a time


def say(line=None):
    """Writes a line; before that, which leases are over (rule F10)."""
    with one:
        for key, lease in leases.items():
            if not lease.valid() and lease not in lost:
                lost.add(lease)
                print("lost", key, flush=True)
        if line:
            print(line.replace("\n", " "), flush=True)


def drop(key):
    """Forgets a lease that is to be released: it is not lost then."""
    with one:
        say()
        return leases.pop(key)


def answer(word, key="", ttl="0", wait="0"):
    if word == "valid":
        return "yes" if key in leases and leases[key].valid() else "no"
    if word == "acquire":
        ttl = int(ttl) / 1000
        if key in leases:
            return "error it is held here already"
        if key not in locks or locks[key].ttl != ttl:
            locks[key] = Lock(store, key, ttl)
        lease = locks[key].acquire(int(wait) / 1000, on_lost=lambda _: say())
        with one:
            leases[key] = lease
        return f"acquired {lease.token}"
    if word == "release":
        if key not in leases:
            return "error it is not held here"
        drop(key).release()
        return "released"
    return f"error there is no {word!r} here"


print("ready 1 renews-itself", flush=True)
for request in sys.stdin:
    words = request.split()
    if words == ["quit"]:
        break
    try:
        said = answer(*words)
    except Held as err:
        said = f"held {err}"
    except (Error, TypeError, ValueError) as err:
        said = f"error {err}"
    say(said)
