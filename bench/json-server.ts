/**
 * A manager's JSON API on a port, in a process of its own so that its time and memory can be told from its clients'.
 * Argument: JSON of `Load`. Prints its port; for each line on its standard input one JSON line: `rest` gives its `Memory`
 * after a collection, `run` its `Ran` after having changed what it was asked to. Ends with its standard input.
 *
 * Each change puts the time into the message of a task's status: clients tell by it how late they are told.
 */
import { createInterface } from "node:readline";
import { startJsonApi } from "../actors/json/json-api.ts";
import { createLogins } from "../actors/json/logins.ts";
import { createJsonWatchers } from "../actors/json/json-watcher.ts";
import { Registry } from "../edges/juju/dispatch.ts";
import { createFacades } from "../edges/juju/facades/index.ts";
import { Feed } from "../edges/juju/feed/feed.ts";
import { createAdmission } from "../edges/grpc/admission/admission.ts";
import { listenJson } from "../edges/juju/listener.ts";
import type { Identity } from "../runtime/json-api.ts";
import { createLocalIdentity } from "../runtime/pki/index.ts";
import { memoryNow, type Load, type Ran } from "./json-load.ts";
import { watchable, Writer } from "./watching.ts";

/** As many records a second as there may be; each holds what came in the meantime. */
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
    // What a password costs is not what is measured.
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
    // What came due while others had their turn comes at once, as a ledger would bring it.
    const missed = Math.floor(((performance.now() - startedAt) / 1_000) * changesPerSecond) - changes;
    const now = Math.max(perRecord, missed);
    apply(writer.patching(now, String(Date.now())));
    changes += now;
  }
  const took = (performance.now() - startedAt) / 1_000;
  const { user, system } = process.cpuUsage(before);
  const last: Record<string, string> = {};
  for (const { id } of feed.view().units) {
    const unit = feed.find("unit", id);
    if (unit !== undefined) last[id] = replica.get("task", unit.taskId)?.status?.message ?? "";
  }
  return { changes, cpuSeconds: (user + system) / 1e6, seconds: took, last };
}

say(listener.port);
for await (const line of createInterface({ input: process.stdin })) {
  say(line === "run" ? await run() : await memoryNow());
}
process.exit(0);
