/**
 * A manager's JSON API on a port, in its own process so that its time and memory are separate from its clients'. Argument: JSON
 * of `Load`. Prints its port; for each line on its standard input one JSON line: `rest` returns its `Memory` after a
 * collection, `run` its `Ran` after the requested changes. Exits when its standard input closes.
 *
 * Each change puts the time into the message of a task's status, from which clients compute their delay.
 */
import { createInterface } from "node:readline";
import { startJsonApi } from "../actors/json/api.ts";
import { createLogins } from "../actors/json/logins.ts";
import { createJsonWatchers } from "../actors/json/watcher.ts";
import { Registry } from "../edges/juju/dispatch.ts";
import { createFacades } from "../edges/juju/facades/index.ts";
import { Feed } from "../edges/juju/feed/feed.ts";
import { createAdmission } from "../edges/grpc/admission/admission.ts";
import { listenJson } from "../edges/juju/listener.ts";
import type { Identity } from "../runtime/ports/json-api.ts";
import { createLocalIdentity } from "../lib/pki/index.ts";
import { memoryNow, type Load, type Ran } from "./json-load.ts";
import { watchable, Writer } from "./watching.ts";

/** Maximum records a second; each contains the changes since the last one. */
const recordsPerSecond = 100;

const { tasks, changesPerSecond, seconds } = JSON.parse(process.argv[2] ?? "{}") as Load;
const writer = new Writer(tasks);
const { environment: env, telemetry, apply, replica } = await watchable(writer);
apply(writer.joining());
const who: Identity = { kind: "user", name: "bench", role: "admin" };
const real = startJsonApi(
  env,
  createLogins(env, { hash: () => Promise.reject(new Error("none")), verify: () => Promise.resolve(true) }),
);
const feed = new Feed({ store: env.store, clock: env.clock });
const identity = await createLocalIdentity(Date.now());
const listener = await listenJson({
  host: "127.0.0.1",
  port: 0,
  credentials: {
    certificatePem: identity.certificatePem,
    keyPem: identity.keyPem,
    acceptedPem: identity.certificatePem,
  },
  telemetry,
  admission: createAdmission(telemetry),
  parts: {
    // The benchmark excludes the cost of passwords.
    api: {
      ...real,
      checkLogin: () => Promise.resolve({ kind: "accepted", identity: who, lastLoginMs: null }),
      identityNow: () => who,
    },
    registry: new Registry(
      createFacades({
        store: env.store,
        clock: env.clock,
        log: telemetry.log,
        control: {} as never,
        operator: {} as never,
        taskAccess: {} as never,
        logs: {} as never,
        feed,
        watchers: createJsonWatchers(env),
        users: {} as never,
        setPassword: () => Promise.resolve(),
      }),
    ),
    clock: env.clock,
    clusterId: () => "bench",
    rootPem: () => identity.certificatePem,
    servers: () => [],
    redirect: null,
    loginName: () => ({ kind: "user", name: "bench" }),
  },
});
const say = (line: unknown): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

async function run(): Promise<Ran> {
  const startedAt = performance.now();
  const perRecord = Math.max(1, Math.round(changesPerSecond / recordsPerSecond));
  let changes = 0;
  const before = process.cpuUsage();
  while (performance.now() - startedAt < seconds * 1_000) {
    const due = startedAt + (changes / changesPerSecond) * 1_000 - performance.now();
    await new Promise<void>((resolve) => (due > 1 ? setTimeout(resolve, due) : setImmediate(resolve)));
    // Changes that fell due while other work ran are made together, as a ledger would.
    const missed = Math.floor(((performance.now() - startedAt) / 1_000) * changesPerSecond) - changes;
    const now = Math.max(perRecord, missed);
    apply(writer.patching(now, String(Date.now())));
    changes += now;
  }
  const elapsedSeconds = (performance.now() - startedAt) / 1_000;
  const { user, system } = process.cpuUsage(before);
  const last: Record<string, string> = {};
  for (const { id } of feed.view().units) {
    const unit = feed.find("unit", id);
    if (unit !== undefined) last[id] = replica.get("task", unit.taskId)?.status?.message ?? "";
  }
  return { changes, cpuSeconds: (user + system) / 1e6, seconds: elapsedSeconds, last };
}

say(listener.port);
for await (const line of createInterface({ input: process.stdin })) {
  say(line === "run" ? await run() : await memoryNow());
}
process.exit(0);
