/**
 * Process tasks end to end: a manager, an agent and its exec driver plugin. Measures what the agent needs with many of them,
 * what they cost while idle (each is waited for), and while the statistics of each are requested.
 */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { connectUnix } from "../edges/grpc/client.ts";
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  ExecSpec,
  GenericRuntimeSpec,
  ListTasksRequest,
  ReplicatedService,
  ServiceSpec,
  TaskAccessService,
  TaskCallRequest,
  TaskSpec,
  TaskState,
  TaskStatsWish,
  type Task,
} from "../proto/gen/messages.ts";
import { Cluster, type Manager } from "./cluster.ts";
import { until } from "./peers.ts";
import { cpuSeconds, memoryMiB, ownMemoryMiB, processTree } from "./processes.ts";
import { mebibytes, seconds } from "./table.ts";

const statsIntervalMs = 1_000;
const runningWithinMs = 180_000;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function sleepers(replicas: number): ServiceSpec {
  const exec = ExecSpec.create({ command: "sleep", args: ["3600"] });
  const payload = Any.create({ type_url: "type.muster.dev/muster.v1.ExecSpec", value: ExecSpec.encode(exec) });
  return ServiceSpec.create({
    annotations: Annotations.create({ name: "sleepers" }),
    task: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec", payload }) }),
    replicated: ReplicatedService.create({ replicas }),
  });
}

async function running(manager: Manager): Promise<readonly Task[]> {
  const { tasks } = await manager.ask(ControlService.methods.ListTasks, ListTasksRequest.create());
  return tasks.filter(({ status }) => status?.state === TaskState.RUNNING);
}

/** The program of a process; empty if it has exited. */
function programOf(pid: number): string {
  try {
    return basename(readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")[0] ?? "");
  } catch {
    return "";
  }
}

interface Parts {
  readonly agent: readonly number[];
  readonly drivers: readonly number[];
  readonly manager: readonly number[];
}

/** Percent of a core that each part uses during `ms`. */
async function shares(parts: Parts, ms: number): Promise<string> {
  const names = ["agent", "drivers", "manager"] as const;
  const before = names.map((name) => cpuSeconds(parts[name]));
  const begun = performance.now();
  await pause(ms);
  const spent = (performance.now() - begun) / 1_000;
  return names
    .map((name, at) => `${name} ${(((cpuSeconds(parts[name]) - (before[at] ?? 0)) / spent) * 100).toFixed(1)} %`)
    .join(", ");
}

export async function agentRows(count: number, watchedMs: number): Promise<string[][]> {
  const cluster = new Cluster();
  try {
    const manager = await cluster.manager();
    const agent = await cluster.agent(manager, "one");
    const [agentPid, managerPid] = [agent.process.child.pid as number, manager.process.child.pid as number];
    const idle = mebibytes(memoryMiB([agentPid], "VmRSS"));
    const begun = performance.now();
    await manager.ask(ControlService.methods.CreateService, CreateServiceRequest.create({ spec: sleepers(count) }));
    await until(`${count} running tasks`, async () => (await running(manager)).length === count, runningWithinMs);
    const started = seconds((performance.now() - begun) / 1_000);
    await pause(2_000);
    const below = processTree(agentPid).slice(1);
    const parts: Parts = {
      agent: [agentPid],
      drivers: below.filter((pid) => programOf(pid) !== "sleep"),
      manager: processTree(managerPid),
    };
    const memory = mebibytes(memoryMiB(parts.agent, "VmRSS"));
    const beside = mebibytes(ownMemoryMiB(parts.drivers));
    const held = await shares(parts, watchedMs / 2);
    const channel = await connectUnix(manager.socket);
    let samples = 0;
    let failed = "";
    for (const { id } of await running(manager)) {
      const request = TaskCallRequest.create({
        taskId: id,
        stats: TaskStatsWish.create({ intervalMs: statsIntervalMs }),
      });
      channel.serverStream(TaskAccessService.methods.Call, request, {
        onMessage: () => (samples += 1),
        onEnd: (error) => (failed = error?.message ?? failed),
      });
    }
    await pause(3_000);
    samples = 0;
    const measured = await shares(parts, watchedMs);
    const perSecond = Math.round((samples / watchedMs) * 1_000);
    channel.close();
    return [
      [`agent: ${count} tasks of one service, from its creation to all RUNNING`, started],
      [`agent: memory with ${count} running tasks (with none)`, `${memory} (${idle})`],
      [`agent: its ${parts.drivers.length} driver processes, shared pages counted once`, beside],
      [`agent: ${count} tasks being waited for, CPU`, held],
      [
        `agent: statistics of ${count} tasks each second, requested at the manager, CPU`,
        `${measured} (${perSecond} samples/s${failed === "" ? "" : `; ${failed}`})`,
      ],
    ];
  } finally {
    await cluster.end();
  }
}
