#!/usr/bin/env node
// lock.mjs KEY CMD [ARG...]: run a command under a lock of `leasehold serve`.
//
// Ends with the command's code, with 75 if another holds the lock, and with 76 if the lease was lost: then the
// command was killed first. If it cannot ask, the command does not run: 64 if the request is wrong, 77 if it is not
// allowed, 69 if the server or its store fails. LEASEHOLD_SERVE is where to ask, LEASEHOLD_WAIT and LEASEHOLD_TTL are
// durations.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const base = process.env.LEASEHOLD_SERVE ?? "http://127.0.0.1:4041";

async function ask(method, path, body, timeout) {
  const answer = await fetch(base + path, {
    method,
    body: JSON.stringify(body ?? {}),
    headers: { "Content-Type": "application/json" },
    signal: timeout && AbortSignal.timeout(Math.max(Math.floor(timeout), 50)),
  });
  const text = await answer.text();
  return { status: answer.status, ...JSON.parse(text || "{}"), code: answer.status };
}

// keep sends a keepalive each quarter of what is left, and returns why the lease is as good as over, in time.
async function keep(lease, left) {
  let until = performance.now() + left;
  for (;;) {
    const sent = performance.now();
    try {
      const answer = await ask("POST", `/v1/leases/${lease}/keepalive`, {}, (until - sent) / 2);
      if (answer.code === 404 || answer.code === 410) return answer.detail;
      if (answer.code === 200) {
        left = answer.left_ms;
        until = sent + left; // counted from the moment in which it was asked
      }
    } catch (failed) {
      console.error("lock.mjs:", failed.message); // perhaps it answers next time
    }
    if (until - performance.now() < left / 3) return "no keepalive was answered in time";
    await sleep(left / 4);
  }
}

// refused is the exit code for a status that is not 200: only of a lock that is held is it 75.
function refused(status) {
  if (status === 409) return 75;
  if ([401, 403, 421].includes(status)) return 77;
  return status >= 400 && status < 500 && ![408, 410, 429].includes(status) ? 64 : 69;
}

const [key, ...command] = process.argv.slice(2);
const wants = {
  id: randomBytes(16).toString("hex"), wait: process.env.LEASEHOLD_WAIT ?? "30s",
  ttl: process.env.LEASEHOLD_TTL ?? "10s", holder: `node/${process.pid}`,
};
let lease;
for (const pause of [1000, 1000, 0]) {
  lease = await ask("POST", `/v1/locks/${key}/acquire`, wants)
    .catch((failed) => ({ code: 0, detail: `${failed.message}: ${failed.cause ?? ""}` })); // no server, or the answer was lost
  if (lease.code) break;
  await sleep(pause); // with the same id, the next request gets the lease of this one
}
if (lease.code !== 200) {
  console.error("lock.mjs:", lease.detail ?? lease.code);
  process.exit(refused(lease.code));
}
const env = { ...process.env, LEASEHOLD_TOKEN: String(lease.token) };
const child = spawn(command[0], command.slice(1), { stdio: "inherit", env });
let code;
const ended = new Promise((done) => child.on("exit", (code, signal) => done(code ?? (signal && 128))).on("error", () => done(127)));
keep(lease.lease, lease.left_ms).then((why) => {
  if (code !== undefined) return; // it has ended, and the lease is being released
  child.kill("SIGKILL");
  console.error("lock.mjs: the lease is lost:", why);
  process.exit(76);
});
code = await ended;
await ask("DELETE", `/v1/leases/${lease.lease}`, {}, 3000).catch((failed) => console.error("lock.mjs:", failed.message));
process.exit(code);
