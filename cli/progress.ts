/** Shows how a service comes to where it should be, until it is there; driven by Watch, so that no moment is missed. */
import {
  ControlService,
  GetServiceRequest,
  ListTasksRequest_Filters,
  SelectBy,
  WatchRequest_WatchEntry,
  type Node,
  type Service,
  type Task,
  type WatchActionKind,
  type WatchMessage,
} from "../proto/gen/messages.ts";
import { convergence, type Convergence } from "./convergence.ts";
import { listNodes, listTasks, type ManagerClient } from "./manager-client.ts";
import type { Shell } from "./shell.ts";
import { UserError } from "./user-error.ts";
import { everyAction, watch } from "./watching.ts";

const barWidth = 40;

function bar(done: number, wanted: number): string {
  const filled = wanted === 0 ? barWidth : Math.round((done / wanted) * barWidth);
  return `[${"=".repeat(filled)}${" ".repeat(barWidth - filled)}]`;
}

/** Draws over its own line on a terminal; elsewhere prints a line whenever it says something new. */
function reporter(shell: Shell): { show(state: Convergence): void; end(): void } {
  let last = "";
  const erase = (): void => {
    if (shell.isInteractive && last !== "") process.stderr.write("\r\x1b[K");
  };
  return {
    show(state) {
      if (state.kind !== "moving") return;
      const { done, wanted, remark } = state;
      const line = `overall progress: ${done} out of ${wanted} tasks${remark === "" ? "" : `: ${remark}`}`;
      if (line === last) return;
      erase();
      last = line;
      if (shell.isInteractive) process.stderr.write(`${bar(done, wanted)} ${line}`);
      else shell.remark(line);
    },
    end: erase,
  };
}

interface Picture {
  service: Service | null;
  readonly tasks: Map<string, Task>;
  readonly nodes: Map<string, Node>;
}

function apply(picture: Picture, { events }: WatchMessage): void {
  for (const { action, object } of events) {
    const isGone = action === 4;
    if (object?.service != null) picture.service = isGone ? null : object.service;
    else if (object?.task != null) {
      if (isGone) picture.tasks.delete(object.task.id);
      else picture.tasks.set(object.task.id, object.task);
    } else if (object?.node != null) {
      if (isGone) picture.nodes.delete(object.node.id);
      else picture.nodes.set(object.node.id, object.node);
    }
  }
}

function entriesFor(serviceId: string): readonly WatchRequest_WatchEntry[] {
  const action = everyAction as WatchActionKind;
  return [
    WatchRequest_WatchEntry.create({ kind: "service", action, filters: [SelectBy.create({ id: serviceId })] }),
    WatchRequest_WatchEntry.create({ kind: "task", action, filters: [SelectBy.create({ serviceId })] }),
    WatchRequest_WatchEntry.create({ kind: "node", action }),
  ];
}

/** Resolves when the service has converged; rejects with UserError when it cannot. Nothing is printed when `quiet`. */
export async function untilConverged(
  client: ManagerClient,
  shell: Shell,
  serviceId: string,
  options: { readonly quiet: boolean; readonly isRollback?: boolean },
): Promise<void> {
  const picture: Picture = { service: null, tasks: new Map(), nodes: new Map() };
  const early: WatchMessage[] = [];
  const done = Promise.withResolvers<void>();
  const report = reporter(shell);
  let isListed = false;

  function judge(): void {
    const { service } = picture;
    const state: Convergence =
      service === null
        ? { kind: "failed", reason: "the service was removed" }
        : convergence(service, picture.tasks.values(), picture.nodes.values(), options.isRollback ?? false);
    if (!options.quiet) report.show(state);
    if (state.kind === "converged") done.resolve();
    else if (state.kind === "failed") done.reject(new UserError(state.reason));
  }

  // Watch first, list then: what the list already holds is only told twice.
  const watching = watch(client, entriesFor(serviceId), (message) => {
    if (!isListed) {
      early.push(message);
      return;
    }
    apply(picture, message);
    judge();
  });
  try {
    await watching.started;
    const filters = ListTasksRequest_Filters.create({ serviceIds: [serviceId] });
    const [{ service }, tasks, nodes] = await Promise.all([
      client.call(ControlService.methods.GetService, GetServiceRequest.create({ serviceId })),
      listTasks(client, filters),
      listNodes(client),
    ]);
    picture.service = service;
    for (const task of tasks) picture.tasks.set(task.id, task);
    for (const node of nodes) picture.nodes.set(node.id, node);
    isListed = true;
    // All of it is at least as new as the lists only where it says so; what is older than they are must not win.
    for (const message of early) apply(picture, newerThan(picture, message));
    judge();
    await Promise.race([done.promise, watching.broken]);
  } finally {
    watching.cancel();
    report.end();
  }
  if (!options.quiet) shell.remark("verify: Service converged");
}

/** The message without events that the picture is ahead of. */
function newerThan(picture: Picture, message: WatchMessage): WatchMessage {
  const version = message.version?.index ?? 0;
  const known = ({ object }: WatchMessage["events"][number]): number => {
    const held =
      object?.service != null
        ? picture.service
        : object?.task != null
          ? picture.tasks.get(object.task.id)
          : picture.nodes.get(object?.node?.id ?? "");
    return held?.meta?.version?.index ?? 0;
  };
  return { version: message.version, events: message.events.filter((event) => version > known(event)) };
}
