/**
 * Conditions that must hold after each fault; violations are reported as sentences. Some take time, so the checks repeat until
 * no problem is left or the time is over.
 */
import {
  ControlService,
  ListClustersRequest,
  ListConfigsRequest,
  ListNetworksRequest,
  ListNodesRequest,
  ListSecretsRequest,
  ListServicesRequest,
  ListTasksRequest,
  NodeStatus_State,
  TaskState,
  type Task,
} from "../../proto/gen/messages.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { blobStream, leaseStream, logStream } from "../../runtime/nats/streams.ts";
import { ask, nodes, status, tasks } from "../fixtures/control-client.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { askHealth, type HealthWatch } from "./health-watch.ts";
import { parentOf, type Place, wordsOf } from "./place.ts";
import { services, type World } from "./world.ts";
import { listed, type Writers } from "./writers.ts";

/** Checks while clients write: all parts of the cluster work again. */
export async function unwell(world: World, writers: Writers, health: HealthWatch, since: number): Promise<string[]> {
  const problems: string[] = [];
  for (const { name, process } of world.all) if (!process.isRunning) problems.push(`${name} is not running`);
  for (const stream of [logStream, leaseStream, blobStream])
    if ((await world.observer.leaderOfWhole(stream, 3)) === "")
      problems.push(`${stream} has fewer than three current copies`);
  for (const manager of world.managers) {
    if (health.says(manager) !== "healthy") problems.push(`${manager.name} does not report healthy`);
    if (writers.lastAt(manager.name) < since) problems.push(`no write through ${manager.name} has succeeded`);
  }
  for (const agent of world.agents)
    if ((await askHealth(world.healthUrl(agent))) !== "healthy") problems.push(`${agent.name} has no session`);
  if (problems.length > 0) return problems;
  const [first] = world.managers as [Place];
  for (const { description, status: state } of await nodes(first))
    if (state?.state !== NodeStatus_State.READY) problems.push(`${description?.hostname} is not READY`);
  return [...problems, ...(await misplaced(world))];
}

/** Checks while nobody writes: every manager has exactly the acknowledged writes, and each task runs once. */
export async function untrue(world: World, writers: Writers): Promise<string[]> {
  const problems: string[] = [];
  for (const manager of world.managers) {
    for (const problem of writers.record.problems(await listed(manager))) problems.push(`${manager.name}: ${problem}`);
  }
  return [...problems, ...(await different(world)), ...(await misplaced(world))];
}

const lists: readonly [string, (manager: Place) => Promise<Uint8Array>][] = [
  list("clusters", ControlService.methods.ListClusters, ListClustersRequest.create({})),
  list("nodes", ControlService.methods.ListNodes, ListNodesRequest.create({})),
  list("services", ControlService.methods.ListServices, ListServicesRequest.create({})),
  list("tasks", ControlService.methods.ListTasks, ListTasksRequest.create({})),
  list("networks", ControlService.methods.ListNetworks, ListNetworksRequest.create({})),
  list("secrets", ControlService.methods.ListSecrets, ListSecretsRequest.create({})),
  list("configs", ControlService.methods.ListConfigs, ListConfigsRequest.create({})),
];

function list<Request, Response extends object>(
  name: string,
  method: MethodDescriptor<Request, Response>,
  request: Request,
): [string, (manager: Place) => Promise<Uint8Array>] {
  return [name, async (manager) => method.response.encode(sorted(await ask(manager, method, request)))];
}

/** The order of a list has no meaning. */
function sorted<Response extends object>(response: Response): Response {
  const entries = Object.entries(response).map(([field, value]): [string, unknown] => [
    field,
    Array.isArray(value) ? (value as { id: string }[]).toSorted((a, b) => (a.id < b.id ? -1 : 1)) : value,
  ]);
  return Object.fromEntries(entries) as Response;
}

async function different(world: World): Promise<string[]> {
  const problems: string[] = [];
  const versions = await Promise.all(world.managers.map(async (manager) => (await status(manager)).applied));
  if (new Set(versions).size > 1) problems.push(`the managers are at the versions ${versions.join(", ")}`);
  for (const [name, of] of lists) {
    const answers = await Promise.all(
      world.managers.map(async (manager) => Buffer.from(await of(manager)).toString("base64")),
    );
    if (new Set(answers).size > 1) problems.push(`the managers list different ${name}`);
  }
  return problems;
}

/** Compares the tasks that the cluster wants with the processes on the agents' machines. */
async function misplaced(world: World): Promise<string[]> {
  const problems: string[] = [];
  const [first] = world.managers as [Place];
  const machineOf = new Map((await nodes(first)).map(({ id, description }) => [id, description?.hostname ?? ""]));
  const wanted = new Map<string, Task>();
  const all = (await tasks(first)).filter(({ desiredState }) => desiredState <= TaskState.RUNNING);
  for (const task of all) {
    if (task.status?.state !== TaskState.RUNNING) problems.push(`task ${slotOf(task)} (${task.id}) is not RUNNING`);
    wanted.set(task.id, task);
  }
  for (const { name, replicas } of services) {
    for (let slot = 1; slot <= replicas; slot += 1) {
      const count = all.filter((task) => slotOf(task) === `${name}.${slot}`).length;
      if (count !== 1) problems.push(`${name}.${slot} has ${count} tasks`);
    }
  }
  for (const agent of world.agents) {
    const known = new Set<number>();
    for (const { pid, taskId, slot } of taskProcesses(agent.dataDir)) {
      known.add(pid);
      const task = wanted.get(taskId);
      if (task === undefined)
        problems.push(`${slot} runs on ${agent.name} (${pid}), but the cluster wants no such task (${taskId})`);
      else if (machineOf.get(task.nodeId) !== agent.name)
        problems.push(`${slot} runs on ${agent.name} (${pid}), but belongs on ${machineOf.get(task.nodeId)}`);
      else if (!wanted.delete(taskId)) problems.push(`${slot} runs twice on ${agent.name}`);
    }
    problems.push(...strangers(agent, known));
  }
  for (const task of wanted.values()) problems.push(`no process runs for ${slotOf(task)} (${task.id})`);
  return problems;
}

/** An agent's own helpers, one of each: its exec driver and the keeper of its tasks' output. */
const helpers = ["/drivers/exec/", "/linux/output/"];

/** A task's own process (the first of its namespace), the `unshare` that created it, and the shell that waits for it. */
function withAncestors(pid: number): (number | null)[] {
  const line: (number | null)[] = [pid];
  while (line.length < 4 && line.at(-1) !== null) line.push(parentOf(line.at(-1) as number));
  return line;
}

/** Processes on an agent's machine that are not the agent, a helper, a task, or a process that waits for a task. */
function strangers(agent: Place, tasksOfAgent: ReadonlySet<number>): string[] {
  if (!agent.process.isRunning) return [];
  const owned = new Set<number | null>([agent.process.pid, ...[...tasksOfAgent].flatMap(withAncestors)]);
  const others = agent.pids().filter((pid) => !owned.has(pid));
  const isHelper = (pid: number, helper: string): boolean => wordsOf(pid).some((word) => word.includes(helper));
  const problems: string[] = [];
  for (const helper of helpers) {
    const found = others.filter((pid) => isHelper(pid, helper));
    if (found.length > 1) problems.push(`${helper} runs ${found.length} times on ${agent.name}: ${found.join(", ")}`);
  }
  for (const pid of others.filter((each) => !helpers.some((helper) => isHelper(each, helper)))) {
    const command = wordsOf(pid).join(" ").replaceAll(/\s+/g, " ").slice(0, 80);
    if (command !== "") problems.push(`a process without an owner runs on ${agent.name}: ${pid} ${command}`);
  }
  return problems;
}

function slotOf(task: Task): string {
  return `${task.serviceAnnotations?.name}.${task.slot}`;
}
