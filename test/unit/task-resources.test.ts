// The node resources that a driver task gets and learns of: processors and generic resources.
import test from "ava";
import { taskConfigOf, wantsOf } from "../../actors/driver/task-config.ts";
import type { TaskResources } from "../../actors/agent/ports.ts";
import { UsageError } from "../../lib/user-error.ts";
import { offeredResources } from "../../cli/serve/generic-resources.ts";
import { environmentOf } from "../../linux/task-home/environment.ts";
import {
  DiscreteGenericResource,
  DriverSpec,
  GenericResource,
  NamedGenericResource,
} from "../../proto/gen/messages.ts";
import { driverTask } from "../support/driver-task.ts";
import { NomadDriverConfig } from "../../proto/gen/nomad.ts";

const facts = { architecture: "x86_64", os: "linux", nanoCpus: 4e9, memoryBytes: 2 ** 32, engineVersion: "1" };
const program = { command: "/bin/true" };
const home = { allocDir: "/alloc", stdoutPath: "/out", stderrPath: "/err", env: {}, user: "" };

function linuxResources(resources: Partial<TaskResources>) {
  const of = driverTask("task1", program, {
    resources: { nanoCpus: 0, nanoCpusLimit: 0, memoryBytes: 0, memoryLimitBytes: 0, ...resources },
  });
  const wants = wantsOf(of);
  if (wants.kind === "refused") throw new Error(wants.reason);
  const agent = NomadDriverConfig.create();
  const config = { id: "run1", home, wants, mounts: [], driverConfig: new Uint8Array(0), agent, facts, cgroup: "" };
  return taskConfigOf(of, config).resources?.linuxResources;
}

test("a processor limit is a quota, a reservation a weight, and neither implies the other", (t) => {
  t.like(linuxResources({ nanoCpus: 1e8, nanoCpusLimit: 5e8 }), {
    cpuPeriod: 100_000,
    cpuQuota: 50_000,
    cpuShares: 100,
  });
  t.like(linuxResources({ nanoCpus: 2e9 }), { cpuPeriod: 0, cpuQuota: 0, cpuShares: 2_000 });
  t.like(linuxResources({}), { cpuPeriod: 0, cpuQuota: 0, cpuShares: 100 });
  // The kernel accepts no quota below a millisecond.
  t.like(linuxResources({ nanoCpusLimit: 1e6 }), { cpuPeriod: 100_000, cpuQuota: 1_000 });
});

const counted = (kind: string, value: number): GenericResource =>
  GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind, value }) });
const named = (kind: string, value: string): GenericResource =>
  GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind, value }) });

test("a task learns its assigned units, even without any other variable, and whatever its service says", (t) => {
  const of = driverTask("task1", program, {
    genericResources: [named("gpu", "a1"), counted("ssd", 2), named("gpu", "b2")],
  });
  const directories = { alloc: "", local: "", secrets: "", configs: "", volumes: "" };
  const options = { agent: {}, name: "web", isImage: true, isBare: true, directories };
  const outcome = environmentOf(of, DriverSpec.create({ env: ["DOCKER_RESOURCE_SSD=9", "A=b"] }), options);
  t.deepEqual(outcome, { kind: "env", env: { A: "b", DOCKER_RESOURCE_GPU: "a1,b2", DOCKER_RESOURCE_SSD: "2" } });
});

test("a node's generic resources are counted or named", (t) => {
  t.deepEqual(offeredResources(["ssd=3", "gpu=a1,gpu=b2"]), [
    counted("ssd", 3),
    named("gpu", "a1"),
    named("gpu", "b2"),
  ]);
  t.deepEqual(offeredResources([]), []);
  for (const [texts, message] of [
    [["gpu"], 'invalid argument "gpu" for "--node-generic-resource" flag: expected KIND=COUNT or KIND=NAME'],
    [["=3"], 'invalid argument "=3" for "--node-generic-resource" flag: expected KIND=COUNT or KIND=NAME'],
    [["gpu=a", "gpu=a"], '--node-generic-resource sets "gpu=a" more than once'],
    [["gpu=a", "gpu=3"], '--node-generic-resource sets "gpu" more than once: give one count, or names only'],
    [["gpu=3", "gpu=a"], '--node-generic-resource sets "gpu" more than once: give one count, or names only'],
    [["gpu=3", "gpu=4"], '--node-generic-resource sets "gpu" more than once: give one count, or names only'],
    [["gpu=-1"], '--node-generic-resource: invalid count "-1"'],
    [["gpu=9007199254740993"], '--node-generic-resource: invalid count "9007199254740993"'],
  ] as const)
    t.throws(() => offeredResources(texts), { instanceOf: UsageError, message });
});
