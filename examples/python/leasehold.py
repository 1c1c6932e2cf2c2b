"""Locks of leasehold in Python, on S3 and what speaks like it: docs/format.md, layout "object".
    lock = Lock(S3("my-bucket"), "locks/backup", ttl=15)
    with lock.acquire(wait=60) as lease:     # Held: another has it
        while lease.valid() and work(lease.token): ...

Standard library only. A Lock is for one thread at a time; a Lease may be asked from any.
"""
import datetime, email.utils, hashlib, hmac, http.client, json, os, random, secrets, socket, threading, time
from urllib.parse import quote, urlsplit
MAX_SIZE, MAX_TTL_MS, LAST_TOKEN = 64 << 10, 24 * 3600 * 1000, 2**62 - 1
TEXTS = ("layout", "holder", "address", "write_id", "session", "successor", "ended", "acquired_at", "renewed_at", "expires_at")
# What a record says of one lease. All else stays when the next one begins, known here or not (F13, F14).
OF_A_LEASE = TEXTS + ("format", "token", "state", "ttl_ms", "meta", "previous", "freed", "rest")
_SUSPEND_AWARE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

class Error(Exception): "The store failed, or did not say what became of a write."
class Refused(Error): "The store refuses for good: another try would be answered in the same way."
class Foreign(Error): "The object is not a record that may be written over."
class Held(Error): "Another holds the lock."

def clock(): return time.clock_gettime(_SUSPEND_AWARE)
def margin(ttl): return ttl / 12 + 0.010
def pause(failures): return min((0.1, 1, 2, 4)[min(failures, 4) - 1] * random.uniform(1, 1.25), 4)
def stamp(after=0): return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=after)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

def decode(body):
    "The record in a body, as a dict. Foreign says why there is none (F11)."
    def members(pairs):
        if len(dict(pairs)) < len(pairs): raise ValueError("it has a field twice")
        return dict(pairs)
    try:
        if len(body) > MAX_SIZE: raise ValueError(f"it has more than {MAX_SIZE} bytes")
        r = json.loads(body.decode("utf-8"), object_pairs_hook=members, parse_constant=int)  # which NaN is not
        if type(r) is not dict: raise ValueError("it is not a JSON object")
        number = lambda name, least, most: type(r.get(name)) is int and least <= r[name] <= most
        if number("format", 2, 2**63 - 1): raise ValueError(f"it has format {r['format']}, and this program knows format 1")
        texts = all(type(r.get(name) or "") is str for name in TEXTS)
        objects = all(r.get(name) is None or type(r[name]) is dict for name in ("meta", "freed", "rest"))
        for good, what in ((number("format", 1, 1), "format"), (texts, "texts"), (not r.get("layout"), "layout"),
                           (number("token", 1, 2**63 - 1), "token"), (number("ttl_ms", 1, MAX_TTL_MS), "ttl_ms"), (r.get("write_id"), "write_id"),
                           (r.get("state") in ("held", "free"), "state"), (objects, "objects"),
                           (all(type(v or "") is str for v in (r.get("meta") or {}).values()), "meta"), (type(r.get("previous") or 0) is int, "previous")):
            if not good: raise ValueError(f"its {what} {r.get(what, '')!r:.80} is not what it must be")
        return r
    except (ValueError, RecursionError) as err: raise Foreign(f"the object is not a record that this program understands: {err}") from None

class S3:
    "A bucket, by the settings in the environment that AWS tools have. Nothing is sent twice."
    def __init__(self, bucket, prefix="", endpoint=None, region=None, env=os.environ):
        self.region = region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = endpoint or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or f"https://s3.{self.region}.amazonaws.com"
        self.url, self.where = urlsplit(endpoint), f"/{bucket}/{prefix}"
        self.id, self.secret, token = (env.get("AWS_" + n, "") for n in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"))
        self.session = {"x-amz-security-token": token} if token else {}
    def send(self, method, key, timeout, body=b"", condition=()):
        "One request; gives status, headers and body. Error: it may have been carried out all the same."
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path, digest = quote(self.url.path.rstrip("/") + self.where + key, safe="/"), hashlib.sha256(body).hexdigest()
        headers = {"host": self.url.netloc, "x-amz-content-sha256": digest, "x-amz-date": now, **dict(condition), **self.session}
        signed, scope = sorted(headers), f"{now[:8]}/{self.region}/s3/aws4_request"
        request = "\n".join([method, path, "", *(f"{n}:{headers[n]}" for n in signed), "", ";".join(signed), digest])
        signature = b"AWS4" + self.secret.encode()
        for part in (*scope.split("/"), "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])):
            signature = hmac.new(signature, part.encode(), hashlib.sha256).digest()
        headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={self.id}/{scope}, SignedHeaders={';'.join(signed)}, Signature={signature.hex()}"
        connect = {"https": http.client.HTTPSConnection, "http": http.client.HTTPConnection}[self.url.scheme]
        link = connect(self.url.hostname, self.url.port, timeout=max(timeout, 0.001))
        try:
            link.request(method, path, body or None, headers)
            answer = link.getresponse()
            text = answer.read(MAX_SIZE + 1)
            if answer.length and len(text) <= MAX_SIZE: raise Error(f"{method} {path}: the answer was cut off")
        except (OSError, http.client.HTTPException) as err: raise Error(f"{method} {path}: no answer: {err or type(err).__name__}") from err
        finally: link.close()
        if answer.status in (200, 412) or answer.status == 404 and b"<Code>NoSuchKey</Code>" in text: return answer.status, answer.headers, text
        kind = Error if answer.status >= 500 and answer.status != 501 or answer.status in (408, 409, 429) else Refused
        raise kind(f"{method} {path}: {answer.status} {answer.reason}: {text[:200].decode('utf-8', 'replace')}")

class Lock:
    "One competitor for one lock. ttl is in seconds, from 1 to 86400; holder is a name for people."
    def __init__(self, s3, key, ttl=15.0, holder=None):
        if not 1 <= ttl <= MAX_TTL_MS / 1000: raise ValueError(f"ttl {ttl} is not from 1 to {MAX_TTL_MS // 1000} seconds")
        self.s3, self.key, self.ttl, self.lease = s3, key, round(ttl * 1000) / 1000, None
        self.holder = holder or f"{socket.gethostname()}/{os.getpid()}"
        self.incarnation, self.writes = secrets.token_hex(16), 0  # F2, F9
        self.version = self.record = None  # what was seen last; version "": there is no object
        self.top = self.base = 0  # the greatest token seen; the store's time where there is no object
        self.claimable, self.spread, self.open = 0.0, 0.0, {}  # open: writes that may have landed, or may yet: ID -> (t0, version before)
    def ours(self): return self.record["write_id"].startswith(self.incarnation + ".")  # it says nothing of a lease (F9)
    def look(self, timeout):
        "Reads the object. Gives the t0 of the open write that it shows, if it shows one (F6)."
        status, headers, body = self.s3.send("GET", self.key, timeout)
        now, landed = clock(), None  # F5: from the receipt
        if status == 404:
            if self.version: self.claimable = now + self.patience()  # its holder may not know yet (F16)
            told = email.utils.parsedate_to_datetime(headers["Date"]).timestamp() if headers["Date"] else time.time()
            self.version, self.base = "", int(told * 1000)
        elif headers["ETag"] != self.version:
            self.record, self.version = decode(body), headers["ETag"]
            if self.record["token"] <= LAST_TOKEN: self.top = max(self.top, self.record["token"])
            held = self.record["state"] == "held"
            if held and self.record["write_id"] in self.open: landed = self.open.pop(self.record["write_id"])[0]
            others = held and not self.ours()
            self.claimable, self.spread = now + (self.patience() if others else 0), others * random.uniform(0, self.record["ttl_ms"] / 10000)
        self.open = {} if landed else {n: w for n, w in self.open.items() if w[1] == self.version}
        return landed
    def patience(self):
        ttl = self.record["ttl_ms"] / 1000
        return float("inf") if self.record["state"] == "held" and self.record.get("session") else ttl + margin(ttl)  # F12
    def write(self, record, timeout):
        "One conditional write (F1). Gives its t0; Error: a look must say what became of it (F6)."
        self.writes += 1
        record = {**record, "write_id": f"{self.incarnation}.{self.writes}", "renewed_at": stamp()}
        body = json.dumps(record, separators=(",", ":")).encode()
        if len(body) > MAX_SIZE: raise Refused(f"the record would have {len(body)} bytes, more than {MAX_SIZE}")
        t0 = clock()  # F4: before the first byte
        if record["state"] == "held": self.open[record["write_id"]] = (t0, self.version)
        status, headers, _ = self.s3.send("PUT", self.key, timeout, body, {"if-match": self.version} if self.version else {"if-none-match": "*"})
        if status != 200: raise Error(f"PUT {self.key}: {status}: it is not as it was read, or this write has landed already")
        self.record, self.version, self.open, self.claimable, self.top = record, headers["ETag"], {}, 0.0, max(self.top, record["token"])
        return t0
    def claim(self):
        token = max(self.top + 1, self.base if not self.version else 0)  # F3, F15
        if token > LAST_TOKEN or self.version and self.record["token"] > LAST_TOKEN: raise Foreign("its token was set by hand: none can follow it")
        kept = {n: v for n, v in (self.record or {}).items() if n not in OF_A_LEASE}
        new = {"format": 1, "token": token, "state": "held", "holder": self.holder, "ttl_ms": round(self.ttl * 1000), "session": "", "acquired_at": stamp()}
        return self.write({**new, "expires_at": stamp(self.ttl), **kept}, min(10, self.ttl / 2))
    def acquire(self, wait=0.0, on_lost=None):
        "Gives a Lease, or raises Held, or the Error that kept it from trying. on_lost(lease) is called once if it is lost."
        if self.lease: raise ValueError("release the last lease first")
        self.open, failures, end = {}, 0, clock() + wait  # F8: a write for an earlier lease is not this one
        while True:
            try:
                t0 = self.look(min(10, self.ttl))
                if t0 is None and clock() >= self.claimable + (self.spread if wait else 0): t0 = self.claim()
                if t0 is not None:
                    if clock() < t0 + self.ttl / 2: return Lease(self, t0, on_lost)
                    self.claimable = 0.0  # too little is left to begin: once more, with a new token
                    raise Error(f"{self.key}: the store takes longer than half of the TTL")
                failures, trouble = 0, Held(self.record.get("holder") or "?")
                rest = min(random.uniform(0.3, 0.6), self.ttl / 3, max(self.claimable + self.spread - clock(), 0.02))
            except Error as err:
                if isinstance(err, (Foreign, Refused)): raise
                failures, trouble, rest = failures + 1, err, pause(failures + 1)  # F17
            if clock() + rest >= end and (wait or failures in (0, 3)): raise trouble
            time.sleep(rest)

class Lease:
    "A lock that is held, and renewed by a thread every third of its TTL until release(), or until it is lost."
    def __init__(self, lock, t0, on_lost):
        lock.lease, self.lock, self.token, self.why, self.on_lost = self, lock, lock.record["token"], None, on_lost
        self.deadline, self.over, self.known = t0 + lock.ttl - margin(lock.ttl), False, True
        self.guard, self.end = threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self.keep, args=(t0 + lock.ttl / 3,), daemon=True)
        self.thread.start()
    def __enter__(self): return self
    def __exit__(self, *_): self.release()
    def valid(self):
        "Whether nobody else can hold the lock now. Ask before each step: it says nothing of a moment later."
        with self.guard:
            self.over = self.over or clock() >= self.deadline  # F4; and for good (F10)
            return not self.over
    def lose(self, why):
        with self.guard: self.over, self.why = True, why
        if self.on_lost and not self.end.is_set(): self.on_lost(self)
    def keep(self, due):
        lock, failures = self.lock, 0
        while not self.end.wait(max(0, min(due, self.deadline) - clock())):
            left = self.deadline - clock()
            if left <= 0: return self.lose("it was not renewed in time")
            if clock() < due: continue
            try:
                before, t0 = lock.version, None if self.known else lock.look(min(10, lock.ttl / 6, left))
                if t0 is None and lock.version != before: return self.lose("another has the lock, or nobody: it was changed")
                if t0 is None:
                    self.known = False
                    t0 = lock.write({**lock.record, "expires_at": stamp(lock.ttl)}, min(10, lock.ttl / 3, left))
                with self.guard:  # a good answer that comes too late does not bring it back (F10)
                    self.over = self.over or clock() >= self.deadline
                    if not self.over: self.deadline = t0 + lock.ttl - margin(lock.ttl)
                self.known, failures, due = True, 0, t0 + lock.ttl / 3
            except Foreign as err: return self.lose(str(err))
            except Error:  # it is valid until its deadline, whatever the store says (F18)
                failures, due = failures + 1, clock() + min(pause(failures + 1), lock.ttl / 6)
    def release(self):
        "Frees the lock; the work must have stopped. Error: it may be held until its TTL is over."
        with self.guard: self.over = True  # F7: first of all
        self.end.set()
        self.thread.join()  # one writer at a time
        lock, failures, end, self.lock.open, self.lock.lease = self.lock, 0, clock() + self.lock.ttl, {}, None  # F8
        while True:
            try:
                if not self.known: lock.look(min(10, lock.ttl / 3))
                if not lock.version or lock.record["state"] == "free" or not lock.ours(): return
                self.known = False
                self.known = lock.write({**lock.record, "state": "free", "expires_at": stamp()}, min(10, lock.ttl / 3)) > 0
            except Error as err:
                failures += 1
                if isinstance(err, (Foreign, Refused)) or clock() + pause(failures) > end: raise
                time.sleep(min(pause(failures), lock.ttl / 6))
