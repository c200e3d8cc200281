// The main side over real pipes, against foreign drivers: written in Python, with only its standard library.
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import test, { type ExecutionContext } from "ava";
import { DataplaneActor } from "../../../actors/agent/dataplane.ts";
import { dataplaneLauncher } from "../../../edges/dataplane/driver-process.ts";
import { ToDataplane } from "../../../proto/gen/felix.ts";
import { Host } from "../../../runtime/host.ts";
import { SimRandom } from "../../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../../runtime/sim/trace.ts";
import { SystemClock } from "../../../runtime/system/clock.ts";
import { until } from "../../fixtures/until.ts";
import { ModelDriver } from "../../../simulation/nodes/dataplane-model.ts";
import { endpointOf, policyOf, setOf } from "../../support/dataplane.ts";
import type { DataplaneDelta } from "../../../machines/dataplane/objects.ts";

const systemClock = new SystemClock();

const script = fileURLToPath(new URL("../../fixtures/recording_driver.py", import.meta.url));

function begin(t: ExecutionContext, habits: object) {
  const folder = mkdtempSync(join(tmpdir(), "muster-dataplane-"));
  const record = join(folder, "record");
  const executable = join(folder, "driver");
  writeFileSync(executable, `#!/bin/sh\nexec python3 -u ${script}\n`);
  chmodSync(executable, 0o755);
  const telemetry = createSimTelemetry({
    who: "agent",
    random: new SimRandom("x"),
    trace: new SimTrace(),
  });
  const { log } = telemetry;
  const host = new Host({ clock: systemClock, telemetry, onCrash: (_id, error) => t.fail(String(error)) });
  const env = { ...process.env, RECORD: record, HABITS: JSON.stringify(habits) };
  const news: string[] = [];
  const actor = new DataplaneActor(
    {
      clock: systemClock,
      random: new SimRandom("x"),
      telemetry,
      host,
      launcher: dataplaneLauncher({ name: "recorder", path: executable, env, log }),
    },
    {
      name: "recorder",
      generation: "current",
      settings: { InterfacePrefix: "cali" },
      onNews: ({ state, reason }) => news.push(reason === "" ? state : `${state}: ${reason}`),
    },
  );
  t.teardown(async () => {
    await actor.end();
    rmSync(folder, { recursive: true, force: true });
  });
  const lines = (): readonly string[] => (existsSync(record) ? readFileSync(record, "utf8").split("\n") : []);
  const told = (): readonly ToDataplane[] =>
    lines()
      .filter((line) => line.startsWith("to "))
      .map((line) => ToDataplane.decode(Buffer.from(line.slice(3), "hex")));
  const starts = (): number => lines().filter((line) => line.startsWith("start")).length;
  return { actor, lines, told, starts, news };
}

const kinds = (messages: readonly ToDataplane[]): readonly string[] =>
  messages.map((message) => Object.keys(ToDataplane.toJson(message)).find((name) => name !== "sequenceNumber") ?? "");

const large = setOf(
  "large",
  Array.from({ length: 50_000 }, (_, index) => `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`),
);

test("a driver in another language gets every message in order, whatever the size of its reads and writes", async (t) => {
  const { actor, told, lines, news } = begin(t, { readBytes: 1, writeSingly: true });
  for (const object of [endpointOf("w1", []), policyOf("p", ["s"]), setOf("s", ["10.0.0.1", "fd00::1"])])
    actor.apply({ kind: "put", object });
  actor.ready();
  await until("its report", () => actor.statuses.get("workload muster w1 eth0") === "up");
  t.truthy(actor.since);
  t.deepEqual(kinds(told()), ["configUpdate", "ipsetUpdate", "activePolicyUpdate", "workloadEndpointUpdate", "inSync"]);
  t.deepEqual(
    told().map(({ sequenceNumber }) => sequenceNumber),
    [0, 1, 2, 3, 4],
  );
  t.regex(lines()[0] ?? "", /fds \[0, 1, 2, 3, 4[\],]/);
  actor.apply({ kind: "members", id: "s", added: ["10.0.0.2"], removed: ["fd00::1"] });
  actor.apply({ kind: "removed", ref: endpointOf("w1", []) });
  await until("the changes", () => told().length === 7);
  t.deepEqual(kinds(told().slice(5)), ["ipsetDeltaUpdate", "workloadEndpointRemove"]);
  t.deepEqual(news, ["wait-for-ready: this node's needs are unknown yet", "resync", "in-sync"]);
  await actor.end();
  await until("the end", () => news.at(-1) === "stopped");
});

test("a driver that dies halfway is restarted and gets everything from the beginning", async (t) => {
  const { actor, told, starts, news } = begin(t, { diesAfter: 2 });
  for (const object of [setOf("s", ["10.0.0.1"]), large]) actor.apply({ kind: "put", object });
  actor.ready();
  await until("another start", () => starts() >= 2 && told().length >= 4);
  t.deepEqual(kinds(told()).slice(0, 4), ["configUpdate", "ipsetUpdate", "configUpdate", "ipsetUpdate"]);
  t.true(news.includes("restarting: it ended: signal SIGKILL"));
});

for (const [title, habits, reason] of [
  ["exits at once", { exitAtOnce: 3 }, /exit code 3/],
  ["writes a length of 2^40", { writes: "0000000000010000" }, /cannot read its messages: frame of 1099511627776 bytes/],
  ["prints to its pipe", { writes: Buffer.from("hello, main\n").toString("hex") }, /cannot read its messages/],
  ["writes an invalid message", { writes: "0200000000000000ffff" }, /cannot read its messages/],
  ["closes its pipe", { closes: true }, /it closed its pipe$/],
  [
    "stops in the middle of a frame",
    { writes: "0a000000000000003207", closes: true },
    /closed its pipe inside a frame/,
  ],
] as const) {
  test(`a driver that ${title} is ended, and another one starts`, async (t) => {
    const { actor, starts, news } = begin(t, habits);
    actor.ready();
    await until("another start", () => starts() >= 2);
    t.true(
      news.some((line) => line.startsWith("restarting") && reason.test(line)),
      news.join("\n"),
    );
  });
}

test("an empty frame, an unknown message, and a status without its id or without a status are harmless", async (t) => {
  const frames = ["", "920300", "3a00", "32061204" + "0a027570", "32020a00", "2a021200"];
  const writes = frames
    .map((each) => `${(each.length / 2).toString(16).padStart(2, "0")}00000000000000${each}`)
    .join("");
  const { actor, news } = begin(t, { writes });
  actor.ready();
  await until("its report", () => actor.statuses.size === 1);
  t.is(news.at(-1), "in-sync");
});

test("a driver that never reads causes no growth, and is killed", async (t) => {
  const { actor, starts, news } = begin(t, { neverReads: true, ignoreTerm: true });
  actor.apply({ kind: "put", object: large });
  actor.ready();
  await until("its start", () => starts() === 1);
  for (let step = 0; step < 5_000; step++) {
    actor.apply({ kind: "members", id: "large", added: [`10.9.${step >> 8}.${step & 255}`], removed: [] });
    actor.apply({ kind: "put", object: policyOf(`p${step % 10}`, ["large"]) });
  }
  t.true(actor.waiting <= 11, `${actor.waiting} wait`);
  t.is(news.at(-1), "resync");
  await actor.end();
  t.is(news.at(-1), "stopped");
});

test("updates that a slow driver in another language has not read are merged, and it reaches the wanted state", async (t) => {
  const { actor, told } = begin(t, { readBytes: 512, slowness: 0.02 });
  const model = new ModelDriver();
  const tell = (delta: DataplaneDelta): void => {
    model.want(delta);
    actor.apply(delta);
  };
  tell({ kind: "put", object: large });
  actor.ready();
  for (let step = 0; step < 3_000; step++) {
    tell({
      kind: "members",
      id: "large",
      added: [`10.9.${step >> 8}.${step & 255}`],
      removed: [`10.0.0.${step & 255}`],
    });
    tell({ kind: "put", object: policyOf(`p${step % 10}`, step % 2 === 0 ? ["large"] : []) });
    if (step % 3 === 0) tell({ kind: "removed", ref: policyOf(`p${(step + 5) % 10}`, []) });
    if (step % 100 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const last = policyOf("last", []);
  tell({ kind: "put", object: last });
  await until("the last change", () =>
    told().some(({ activePolicyUpdate }) => activePolicyUpdate?.id?.name === "last"),
  );
  await until("all messages", () => actor.waiting === 0);
  await until("the driver to exit", () => {
    const heard = new ModelDriver();
    for (const message of told()) heard.take(message);
    return isDeepStrictEqual([heard.picture(), heard.problems], [model.picture(), []]);
  });
  t.true(told().length < 3_000, `${told().length} messages`);
  t.is(told().filter(({ inSync }) => inSync !== null).length, 1);
});

test("a missing executable is reported and retried", async (t) => {
  const { actor, news } = begin(t, {});
  const missing = new DataplaneActor(
    {
      ...portsOf(t),
      launcher: dataplaneLauncher({
        name: "none",
        path: "/nonexistent/driver",
        env: {},
        log: portsOf(t).telemetry.log,
      }),
    },
    { name: "none", generation: "2016", settings: {} },
  );
  missing.ready();
  await until("its end", () => missing.news.state === "restarting");
  t.regex(missing.news.reason, /cannot start it/);
  await missing.end();
  await actor.end();
  t.is(news.at(-1), "stopped");
});

function portsOf(t: ExecutionContext) {
  const telemetry = createSimTelemetry({
    who: "agent",
    random: new SimRandom("x"),
    trace: new SimTrace(),
  });
  const host = new Host({ clock: systemClock, telemetry, onCrash: (_id, error) => t.fail(String(error)) });
  return { clock: systemClock, random: new SimRandom("x"), telemetry, host };
}
