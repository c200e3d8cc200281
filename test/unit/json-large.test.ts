// How the JSON API handles a cluster that is larger than one slice of work or one answer.
import test from "ava";
import {
  Annotations,
  ContainerSpec,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { newStatus } from "../../edges/juju/entities/status-new.ts";
import { oldStatus } from "../../edges/juju/entities/status-old.ts";
import { statusText } from "../../edges/juju/entities/status-text.ts";
import type { Shape } from "../../edges/juju/shape.ts";
import { failureOf, jsonWorld, type Reply } from "../support/json-world.ts";

/** Maximum message size of stock Python clients, in bytes. */
const clientsMax = 4 * 1_024 * 1_024;

function task(slot: number, state: TaskState = TaskState.RUNNING): Task {
  return Task.create({
    id: `t${slot}`,
    serviceId: "s",
    serviceAnnotations: Annotations.create({ name: "web" }),
    spec: TaskSpec.create({ container: ContainerSpec.create({ image: "busybox:1" }) }),
    slot,
    desiredState: TaskState.RUNNING,
    status: TaskStatus.create({ state, message: "☃".repeat(20) }),
  });
}

const tasks = (count: number): Task[] => Array.from({ length: count }, (_, at) => task(at + 1));

for (const shape of ["V0", "V1"] satisfies Shape[]) {
  test(`the units of a large cluster come on several pages that clients accept, and so do changes meanwhile: ${shape}`, async (t) => {
    const { seed, drop, connect, settle } = await jsonWorld(t);
    seed("task", ...tasks(6_000));
    const { ask } = connect(shape);
    const isOld = shape === "V0";
    const watching = ask({ type: "Client", request: "WatchAll", version: isOld ? 0 : 6 });
    await settle();
    const made = await watching;
    const id = String(made[isOld ? "AllWatcherId" : "watcher-id"]);
    const units = new Map<string, string>();
    let pages = 0;
    async function next(): Promise<void> {
      const reply = await ask({ type: "AllWatcher", request: "Next", id, version: isOld ? 0 : 3 });
      t.true(Buffer.byteLength(JSON.stringify(reply)) < clientsMax);
      pages += 1;
      const deltas = reply[isOld ? "Deltas" : "deltas"] as [string, string, Record<string, unknown>][];
      for (const [kind, action, entity] of deltas) {
        const name = String(entity[isOld ? "Name" : "name"]);
        const status = (entity[isOld ? "WorkloadStatus" : "workload-status"] ?? {}) as Record<string, string>;
        if (kind === "unit" && action === "remove") units.delete(name);
        else if (kind === "unit") units.set(name, String(status[isOld ? "Current" : "current"]));
      }
    }
    await next();
    const first = units.size;
    t.true(first > 100 && first < 6_000, `${first} on the first page`);
    seed("task", task(6_000, TaskState.FAILED), task(1, TaskState.FAILED));
    drop("task", "t2");
    drop("task", "t5999");
    await settle();
    for (let at = 0; at < 30 && units.size !== 5_998; at += 1) await next();
    t.is(units.size, 5_998);
    t.true(pages > 2);
    t.is(units.get("web/5999"), "error");
    t.is(units.get("web/0"), "error");
    t.not(units.get("web/2"), "error");
  });

  test(`a full status of many units yields to other work, and equals the cluster's state: ${shape}`, async (t) => {
    const { seed, connect, feed, settle } = await jsonWorld(t);
    const spec = ServiceSpec.create({ annotations: Annotations.create({ name: "web" }) });
    seed("service", Service.create({ id: "s", spec }));
    seed("task", ...tasks(2_500));
    const { ask } = connect(shape);
    const asked = ask({ type: "Client", request: "FullStatus", version: shape === "V0" ? 0 : 6 });
    await settle();
    const status = await asked;
    let rests = 0;
    const form = shape === "V0" ? oldStatus : newStatus({ nowMs: 0, version: "3.5.2" });
    await statusText(feed.view(), form, new WeakMap(), () => {
      rests += 1;
      return Promise.resolve();
    });
    t.is(rests, 5);
    const [services, unitsKey] = shape === "V0" ? ["Services", "Units"] : ["applications", "units"];
    const { web } = (status[services] ?? {}) as Record<string, Record<string, Reply>>;
    t.is(Object.keys(web?.[unitsKey] ?? {}).length, 2_500);
  });
}

test("an excessive number of patterns is rejected", async (t) => {
  const { connect } = await jsonWorld(t);
  const { ask } = connect("V1");
  const patterns = Array.from({ length: 101 }, () => "*a*a*a*b");
  const status = (params: object) => ask({ type: "Client", request: "FullStatus", version: 6, params });
  t.like(await failureOf(() => status({ patterns })), { code: "quota limit exceeded" });
  t.is(await failureOf(() => status({ patterns: patterns.slice(1) })), null);
});
