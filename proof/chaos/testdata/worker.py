"""A worker of the chaos tests: it holds the lock by examples/python/leasehold.py, and tells the checker every 20 ms of it."""
import json, os, random, socket, sys, time
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, sys.argv[1])
from leasehold import Error, Lock, S3

TTL = 2.0
url, worker = urlsplit(sys.argv[2]), int(os.environ["CHAOS_WORKER"])
lock = Lock(S3(url.netloc, endpoint=parse_qs(url.query)["endpoint"][0]), url.path.lstrip("/"), TTL, f"python{worker}")


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def work(lease):
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.environ["CHAOS_JOB"])
        talk = link.makefile("rwb")
        word = {"Worker": worker, "PID": os.getpid(), "Guardian": os.getpid(), "Lock": "lock", "Token": lease.token}
        end = now() + int(random.uniform(0.5, 2.5) * TTL * 1e9)
        while True:
            # The instant comes first: a lease that is valid afterwards was valid then.
            word["At"] = at = now()
            if not lease.valid():
                return
            talk.write(json.dumps(word).encode() + b"\n")
            talk.flush()
            if talk.readline() != b"true\n" or at > end:
                return
            time.sleep(0.02)


while True:
    try:
        with lock.acquire(wait=600) as lease:
            work(lease)
    except Error as err:
        print(f"{now() / 1e9:.3f} {err}", flush=True)
        time.sleep(0.1)  # or a store that is away would be asked without end
    time.sleep(random.uniform(0, TTL / 4))  # let another have it
