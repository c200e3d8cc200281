// The actor of a dataplane driver over scripted drivers: their first input, their input after a death, and their reports.
import test from "ava";
import { DataplaneActor, type DataplaneOptions } from "../../actors/agent/dataplane.ts";
import type { Body } from "../../machines/dataplane/generation.ts";
import {
  EndpointStatus,
  FromDataplane,
  ProcessStatusUpdate,
  WireguardStatusUpdate,
  WorkloadEndpointID,
  WorkloadEndpointStatusRemove,
  WorkloadEndpointStatusUpdate,
} from "../../proto/gen/felix.ts";
import type { DataplaneListener, DataplaneProcess } from "../../runtime/ports/dataplane.ts";
import { Host } from "../../runtime/host.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { endpointOf, policyOf, setOf } from "../support/dataplane.ts";

class FakeDriver implements DataplaneProcess {
  readonly pid = 1;
  readonly told: Body[] = [];
  readonly listener: DataplaneListener;
  /** How many messages it accepts before it is full. */
  room = Infinity;
  graceMs: number | null = null;

  constructor(listener: DataplaneListener) {
    this.listener = listener;
  }

  send(body: Body): boolean {
    this.told.push(body);
    this.room -= 1;
    return this.room > 0;
  }

  end(graceMs: number): void {
    this.graceMs = graceMs;
  }

  says(fields: Partial<FromDataplane>): void {
    this.listener.onMessage(FromDataplane.create(fields));
  }

  get kinds(): readonly string[] {
    return this.told.map((body) => Object.keys(body)[0] as string);
  }
}

async function world(options: Partial<DataplaneOptions> = {}, room = Infinity) {
  const clock = new SimClock();
  const drivers: FakeDriver[] = [];
  const random = new SimRandom("dataplane");
  const telemetry = createSimTelemetry({ who: "agent", random, trace: new SimTrace() });
  const host = new Host({
    clock,
    telemetry,
    onCrash: (_id, error) => {
      throw error;
    },
  });
  const statuses: (readonly [string, string | null])[] = [];
  const actor = new DataplaneActor(
    {
      clock,
      telemetry,
      host,
      random,
      launcher: {
        launch: (listener) => {
          const driver = new FakeDriver(listener);
          driver.room = room;
          drivers.push(driver);
          return driver;
        },
      },
    },
    {
      name: "d",
      generation: "current",
      settings: { InterfacePrefix: "cali" },
      onStatus: (key, status) => statuses.push([key, status]),
      ...options,
    },
  );
  const run = (ms = 0): Promise<unknown> => clock.run({ untilMs: clock.now() + ms });
  const driver = (index: number): FakeDriver => drivers[index] as FakeDriver;
  return { actor, clock, drivers, driver, run, statuses };
}

const first = [setOf("s", ["10.0.0.1"]), policyOf("p", ["s"]), endpointOf("w", [])];

test("D1 D3: no driver starts before all is known; then come settings, everything in order, InSync, and changes", async (t) => {
  const { actor, drivers, driver, run } = await world();
  for (const object of first.toReversed()) actor.apply({ kind: "put", object });
  await run(1_000);
  t.is(drivers.length, 0);
  t.is(actor.news.state, "wait-for-ready");
  actor.ready();
  await run(1);
  t.deepEqual(driver(0).kinds, [
    "configUpdate",
    "ipsetUpdate",
    "activePolicyUpdate",
    "workloadEndpointUpdate",
    "inSync",
  ]);
  t.deepEqual(driver(0).told[0]?.configUpdate?.config, { InterfacePrefix: "cali" });
  t.is(actor.news.state, "in-sync");
  actor.apply({ kind: "members", id: "s", added: ["10.0.0.2"], removed: [] });
  await run(1);
  t.is(driver(0).kinds.at(-1), "ipsetDeltaUpdate");
});

test("A1: messages that a driver does not read are merged, and sent with the current state when it does", async (t) => {
  const { actor, driver, run } = await world({}, 2);
  for (const object of first) actor.apply({ kind: "put", object });
  actor.ready();
  await run(1);
  t.deepEqual(driver(0).kinds, ["configUpdate", "ipsetUpdate"]);
  t.is(actor.news.state, "resync");
  for (let step = 0; step < 100; step++) {
    actor.apply({ kind: "put", object: policyOf(`p${step % 3}`, ["s"]) });
    actor.apply({ kind: "removed", ref: policyOf("p", []) });
    actor.apply({ kind: "members", id: "s", added: [`10.2.0.${step}`], removed: [`10.2.0.${step - 1}`] });
  }
  await run(1_000);
  t.is(driver(0).told.length, 2);
  t.is(actor.waiting, 5);
  driver(0).room = Infinity;
  driver(0).listener.onWritable();
  await run(1);
  t.deepEqual(driver(0).kinds.slice(2).toSorted(), [
    "activePolicyUpdate",
    "activePolicyUpdate",
    "activePolicyUpdate",
    "inSync",
    "ipsetDeltaUpdate",
    "workloadEndpointUpdate",
  ]);
  t.deepEqual(driver(0).told.find((body) => body.ipsetDeltaUpdate)?.ipsetDeltaUpdate?.addedMembers, ["10.2.0.99"]);
});

test("D2 D4: a driver that dies, breaks, or hangs is replaced after a growing delay, and its successor gets everything", async (t) => {
  const { actor, drivers, driver, run } = await world();
  actor.apply({ kind: "put", object: setOf("s", ["10.0.0.1"]) });
  actor.ready();
  await run(1);
  driver(0).listener.onExit("signal SIGKILL");
  t.is(actor.news.state, "restarting");
  t.regex(actor.news.reason, /SIGKILL/);
  await run(400);
  t.is(drivers.length, 1);
  await run(700);
  t.deepEqual(driver(1).kinds, ["configUpdate", "ipsetUpdate", "inSync"]);
  driver(1).listener.onBroken("cannot read its messages");
  t.is(driver(1).graceMs, 4_000);
  await run(60_000);
  t.is(drivers.length, 2, "the one before has not exited");
  driver(1).listener.onExit("signal SIGKILL");
  await run(900);
  t.is(drivers.length, 2);
  await run(1_200);
  t.is(drivers.length, 3);
  // It reports, and then stops reporting.
  await run(61_000);
  driver(2).says({
    processStatusUpdate: ProcessStatusUpdate.create({ isoTimestamp: "2026-01-01T00:00:00Z", uptime: 1 }),
  });
  t.truthy(actor.since);
  await run(89_000);
  t.is(driver(2).graceMs, null);
  await run(2_000);
  t.is(driver(2).graceMs, 4_000);
  driver(2).listener.onExit("signal SIGTERM");
  await run(1_100);
  t.is(drivers.length, 4, "after one that held, the delay is the first one again");
});

test("G2: a driver of 2016 gets the cluster's failsafe ports in its own form", async (t) => {
  const settings = { FailsafeInboundHostPorts: "tcp:22,udp:68,tcp:2377", FailsafeOutboundHostPorts: "udp:53" };
  const { actor, driver, run } = await world({ generation: "2016", settings });
  actor.ready();
  await run(1);
  t.deepEqual(driver(0).told[0]?.configUpdate?.config, {
    FailsafeInboundHostPorts: "22,2377",
    FailsafeOutboundHostPorts: "none",
  });
});

test("changed settings start another driver as soon as the previous one exits; unchanged ones do not", async (t) => {
  const { actor, drivers, driver, run } = await world();
  actor.ready();
  await run(1);
  actor.configure({ InterfacePrefix: "cali" });
  await run(1);
  t.is(driver(0).graceMs, null);
  actor.configure({ InterfacePrefix: "tap" });
  await run(1);
  t.is(driver(0).graceMs, 4_000);
  actor.apply({ kind: "put", object: setOf("s", []) });
  await run(1_000);
  t.is(driver(0).told.length, 2, "a driver that is being ended is sent nothing");
  driver(0).listener.onExit("exit code 1");
  await run(1);
  t.is(drivers.length, 2);
  t.deepEqual(driver(1).told[0]?.configUpdate?.config, { InterfacePrefix: "tap" });
  t.deepEqual(driver(1).kinds, ["configUpdate", "ipsetUpdate", "inSync"]);
});

test("A2: statuses are stored and withdrawn; reports without id, without status or unknown are skipped", async (t) => {
  const { actor, driver, run, statuses } = await world();
  actor.ready();
  await run(1);
  const id = WorkloadEndpointID.create({ orchestratorId: "muster", workloadId: "w", endpointId: "eth0" });
  const status = EndpointStatus.create({ status: "up" });
  driver(0).says({ workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({ id, status }) });
  t.deepEqual([...actor.statuses], [["workload muster w eth0", "up"]]);
  driver(0).says({ workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({ status }) });
  driver(0).says({ workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({ id }) });
  driver(0).says({ workloadEndpointStatusRemove: WorkloadEndpointStatusRemove.create() });
  driver(0).says({ wireguardStatusUpdate: WireguardStatusUpdate.create({ publicKey: "k" }) });
  driver(0).says({});
  t.deepEqual([...actor.statuses], [["workload muster w eth0", "up"]]);
  driver(0).says({ workloadEndpointStatusRemove: WorkloadEndpointStatusRemove.create({ id }) });
  driver(0).says({ workloadEndpointStatusRemove: WorkloadEndpointStatusRemove.create({ id }) });
  t.is(actor.statuses.size, 0);
  driver(0).says({ workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({ id, status }) });
  driver(0).listener.onExit("exit code 1");
  t.is(actor.statuses.size, 0, "a dead driver's reports are void");
  t.is(statuses.at(-1)?.[1], null);
});

test("ending it ends the driver and starts no other, in whatever state it is", async (t) => {
  const { actor, drivers, driver, run } = await world();
  actor.ready();
  await run(1);
  const ended = actor.end();
  t.is(driver(0).graceMs, 4_000);
  driver(0).listener.onExit("signal SIGTERM");
  await ended;
  await actor.end();
  await run(100_000);
  t.is(drivers.length, 1);
  const early = await world();
  await early.actor.end();
  t.is(early.actor.news.state, "stopped");
  const waiting = await world();
  waiting.actor.ready();
  await waiting.run(1);
  waiting.driver(0).listener.onExit("exit code 1");
  await waiting.actor.end();
  await waiting.run(100_000);
  t.is(waiting.drivers.length, 1);
});
