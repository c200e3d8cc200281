/** The sample service of `npm start`: created, awaited until all of it runs, and requested over HTTP. */
import { isRunning, observedState } from "../../machines/task.ts";
import { createServer } from "node:net";
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  ExecSpec,
  GenericRuntimeSpec,
  ListTasksRequest_Filters,
  RemoveServiceRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  TaskState,
  type Task,
} from "../../proto/gen/messages.ts";
import {
  findService,
  listNodes,
  listServices,
  listTasks,
  nodeName,
  serviceName,
  withManager,
  type ManagerClient,
} from "../manager-client.ts";
import type { Shell } from "../shell.ts";
import { formatTable } from "../table.ts";
import { stateName } from "../task/table.ts";
import { programStart } from "../../lib/installation.ts";
import { UserError } from "../../lib/user-error.ts";

const name = "hello";
const replicas = 3;
const firstPort = 8080;
/** Number of ports to try when the first is in use. */
const portsMax = 20;
/** Timeout of `--once`, from the creation to the last answer. */
const timeoutMs = 60_000;
const pollMs = 100;
const methods = ControlService.methods;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await new Promise<void>((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}

async function choosePort(wanted: number | null): Promise<number> {
  if (wanted !== null) {
    if (await isFree(wanted)) return wanted;
    throw new UserError(`port ${wanted} is in use: choose another with --port`);
  }
  for (let port = firstPort; port < firstPort + portsMax; port += 1) if (await isFree(port)) return port;
  throw new UserError(`no port from ${firstPort} to ${firstPort + portsMax - 1} is free: choose one with --port`);
}

function helloSpec(port: number): ServiceSpec {
  const { args, command } = programStart("deploy/samples/hello");
  const exec = ExecSpec.create({
    command,
    args: [...args],
    env: [`PORT=${port}`, "TASK_ID={{.Task.ID}}", "TASK_NAME={{.Task.Name}}", "NODE_HOSTNAME={{.Node.Hostname}}"],
  });
  const payload = Any.create({ type_url: "type.muster.dev/muster.v1.ExecSpec", value: ExecSpec.encode(exec) });
  return ServiceSpec.create({
    annotations: Annotations.create({ name }),
    task: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec", payload }) }),
    replicated: ReplicatedService.create({ replicas }),
  });
}

/** A `hello` of an earlier start has a stale port and stale tasks. */
async function removeOld(client: ManagerClient): Promise<void> {
  const old = (await listServices(client)).find((service) => serviceName(service) === name);
  if (old === undefined) return;
  await client.call(methods.RemoveService, RemoveServiceRequest.create({ serviceId: old.id }));
}

async function helloTasks(client: ManagerClient, serviceId: string): Promise<readonly Task[]> {
  const tasks = await listTasks(client, ListTasksRequest_Filters.create({ serviceIds: [serviceId] }));
  return tasks.filter((task) => task.desiredState <= TaskState.RUNNING);
}

/** Sends requests until each task has answered: the replicas share the port, so several requests are needed. */
async function askAll(url: string, tasks: readonly Task[], deadline: number): Promise<void> {
  const silent = new Set(tasks.map((task) => task.id));
  let problem = "";
  while (silent.size > 0) {
    if (performance.now() > deadline)
      throw new UserError(`${silent.size} of ${tasks.length} tasks of ${name} did not answer at ${url}${problem}`);
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(2_000), headers: { connection: "close" } });
      await response.text();
      silent.delete(response.headers.get("x-task-id") ?? "");
    } catch (error) {
      problem = ` (${(error as Error).message})`;
      await pause(pollMs);
    }
  }
}

/** Rejects with UserError and the reason when not all of it runs and answers within a minute. */
export async function startHello(shell: Shell, wantedPort: number | null): Promise<void> {
  const port = await choosePort(wantedPort);
  const url = `http://127.0.0.1:${port}/`;
  const deadline = performance.now() + timeoutMs;
  await withManager(shell, async (client) => {
    await removeOld(client);
    await client.call(methods.CreateService, CreateServiceRequest.create({ spec: helloSpec(port) }));
    const { id } = await findService(client, name);
    let shown = "";
    let tasks: readonly Task[] = [];
    for (;;) {
      tasks = await helloTasks(client, id);
      const running = tasks.filter((task) => isRunning(task)).length;
      const states = tasks.map((task) => stateName(observedState(task)).toLowerCase()).join(", ");
      const line = `${name}: ${running}/${replicas} running${states === "" ? "" : ` (${states})`}`;
      if (line !== shown) shell.remark((shown = line));
      if (running === replicas) break;
      if (performance.now() > deadline) {
        const reason = tasks.map((task) => task.status?.err ?? "").find((err) => err !== "") ?? "no reason reported";
        throw new UserError(
          `only ${running} of ${replicas} tasks of ${name} are running after ${timeoutMs / 1_000} s: ${reason}`,
        );
      }
      await pause(pollMs);
    }
    await askAll(url, tasks, deadline);
    const nodes = await listNodes(client);
    const names = new Map(nodes.map((node) => [node.id, nodeName(node)]));
    shell.print("");
    shell.print(
      formatTable(
        ["NODE", "HOSTNAME", "ROLE", "ADDRESS"],
        nodes.map((node) => [node.id, nodeName(node), node.role === 1 ? "manager" : "worker", node.status?.addr ?? ""]),
      ),
    );
    shell.print("");
    shell.print(
      formatTable(
        ["TASK", "NAME", "NODE", "STATE"],
        tasks.map((task) => [
          task.id,
          `${name}.${task.slot}`,
          names.get(task.nodeId) ?? task.nodeId,
          stateName(task.status?.state ?? 0),
        ]),
      ),
    );
    shell.print(`\nService ${name}: ${url}`);
  });
}
