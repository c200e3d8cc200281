/**
 * Shows a service's progress until it has converged and remained stable; driven by Watch, so that no change is missed.
 *
 *   moving ──all run──▶ verifying ──for the monitoring time──▶ converged
 *     ▲                     │
 *     └────a task failed────┘        a paused or rolled-back update ends it in any state
 */
import {
  ControlService,
  GetServiceRequest,
  ListTasksRequest_Filters,
  SelectBy,
  UpdateStatus_UpdateState,
  WatchRequest_WatchEntry,
  type Node,
  type Service,
  type Task,
  type WatchActionKind,
  type WatchMessage,
} from "../proto/gen/messages.ts";
import { durationMs } from "../proto/time.ts";
import { convergence } from "./convergence.ts";
import { type Convergence } from "./job/convergence.ts";
import { listNodes, listTasks, serviceName, type ManagerClient } from "./manager-client.ts";
import { overallLine, progressLines, redrawn } from "./service/bars.ts";
import type { Shell } from "./shell.ts";
import { UserError } from "../lib/user-error.ts";
import { everyAction, watch } from "./watching.ts";

/** SwarmKit's default monitoring time for new tasks, in milliseconds. */
const monitorMsDefault = 5_000;
/** Redraw interval of the verification countdown, in milliseconds. */
const countdownMs = 1_000;
/** Width of a terminal that does not report one. */
const columnsDefault = 80;

interface Reporter {
  /** Draws `lines` on a terminal; elsewhere prints `line` when it has changed. */
  show(line: string, lines: readonly string[]): void;
}

function reporter(shell: Shell): Reporter {
  let last = "";
  let drawn = 0;
  return {
    show(line, lines) {
      if (shell.isInteractive) {
        process.stderr.write(redrawn(drawn, lines, process.stderr.columns || columnsDefault));
        drawn = lines.length;
      } else if (line !== last) shell.remark(line);
      last = line;
    },
  };
}

function monitorMs(service: Service): number {
  const ms = durationMs(service.spec?.update?.monitor ?? null, 0);
  return ms > 0 ? ms : monitorMsDefault;
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

/** Prints Docker's note on an interrupt: the service continues without us. */
function uponInterrupt(shell: Shell, name: () => string, end: () => void): () => void {
  const onInterrupt = (): void => {
    shell.remark("Operation continuing in background.");
    shell.remark(`Use 'muster service ps ${name()}' to check progress.`);
    end();
  };
  process.once("SIGINT", onInterrupt);
  return () => void process.off("SIGINT", onInterrupt);
}

function uponAbort(signal: AbortSignal, end: () => void): () => void {
  if (signal.aborted) end();
  signal.addEventListener("abort", end, { once: true });
  return () => signal.removeEventListener("abort", end);
}

/**
 * Resolves when the service has converged and its tasks have run for the monitoring time of its update settings (the manager
 * itself monitors an update; a job needs no monitoring); rejects with UserError when it cannot converge. Prints nothing when
 * `quiet`. With a `signal`, the caller handles interrupts: aborting it ends the wait.
 */
export async function untilConverged(
  client: ManagerClient,
  shell: Shell,
  serviceId: string,
  options: { readonly quiet: boolean; readonly isRollback?: boolean; readonly signal?: AbortSignal },
): Promise<void> {
  const picture: Picture = { service: null, tasks: new Map(), nodes: new Map() };
  const early: WatchMessage[] = [];
  const done = Promise.withResolvers<"converged" | "interrupted">();
  const { show } = reporter(shell);
  let isListed = false;
  /** Message of the start of a rollback, repeated at its end for those who did not see the start. */
  let rollbackReason = "";
  /** Remark for an update that completed without all of its tasks. */
  let shortfall = "";
  let verifying: { readonly until: number; readonly seconds: number; readonly timer: NodeJS.Timeout } | null = null;

  function report(line: string, lines: readonly string[]): void {
    if (!options.quiet) show(line, lines);
  }

  function endVerifying(): void {
    if (verifying !== null) clearInterval(verifying.timer);
    verifying = null;
  }

  function verify(service: Service, wanted: number): void {
    const leftMs = verifying === null ? monitorMs(service) : verifying.until - performance.now();
    if (leftMs <= 0) {
      done.resolve("converged");
      return;
    }
    verifying ??= {
      until: performance.now() + leftMs,
      seconds: Math.ceil(leftMs / 1_000),
      timer: setInterval(judge, Math.min(countdownMs, leftMs)),
    };
    const text = (seconds: number): string =>
      `verify: Waiting ${seconds} ${seconds === 1 ? "second" : "seconds"} to verify that tasks are stable...`;
    report(text(verifying.seconds), [...linesOf(service, wanted, wanted), text(Math.ceil(leftMs / 1_000))]);
  }

  function linesOf(service: Service, ready: number, wanted: number): readonly string[] {
    return progressLines({ service, tasks: picture.tasks.values(), nodes: picture.nodes.values() }, ready, wanted);
  }

  function judge(): void {
    const { service } = picture;
    const { state: update, message = "" } = service?.updateStatus ?? {};
    if (update === UpdateStatus_UpdateState.ROLLBACK_STARTED && options.isRollback !== true && rollbackReason === "") {
      rollbackReason = message;
      if (!options.quiet && !shell.isInteractive) shell.remark(`rollback: ${message}`);
    }
    const state: Convergence =
      service === null
        ? { kind: "failed", reason: "the service was removed" }
        : convergence(service, picture.tasks.values(), picture.nodes.values(), options.isRollback ?? false);
    if (state.kind === "failed") {
      const isBack = update === UpdateStatus_UpdateState.ROLLBACK_COMPLETED;
      done.reject(
        new UserError(isBack && rollbackReason !== "" ? `service rolled back: ${rollbackReason}` : state.reason),
      );
      return;
    }
    if (service === null) return;
    if (state.kind === "converged") {
      if (state.isProven) {
        report(overallLine(service, state.done, state.wanted), linesOf(service, state.done, state.wanted));
        if (state.done < state.wanted) shortfall = `${message}; ${state.done} of ${state.wanted} tasks run`;
        done.resolve("converged");
      } else verify(service, state.wanted);
      return;
    }
    if (verifying !== null && !options.quiet && !shell.isInteractive) shell.remark("verify: Detected task failure");
    endVerifying();
    const line = overallLine(service, state.done, state.wanted);
    const lines = linesOf(service, state.done, state.wanted);
    report(
      `${line}${state.remark === "" ? "" : `: ${state.remark}`}`,
      rollbackReason === "" ? lines : [...lines, `rollback: ${rollbackReason}`],
    );
  }

  // Watch before listing: changes in between arrive twice rather than never.
  const watching = watch(client, entriesFor(serviceId), (message) => {
    if (!isListed) {
      early.push(message);
      return;
    }
    apply(picture, message);
    judge();
  });
  const end = (): void => done.resolve("interrupted");
  const forget =
    options.signal === undefined
      ? uponInterrupt(shell, () => (picture.service === null ? serviceId : serviceName(picture.service)), end)
      : uponAbort(options.signal, end);
  let outcome: "converged" | "interrupted";
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
    // Early events may be older than the lists, unless they carry a version: they must not overwrite newer state.
    for (const message of early) apply(picture, newerThan(picture, message));
    judge();
    outcome = await Promise.race([done.promise, watching.broken]);
  } finally {
    forget();
    endVerifying();
    watching.cancel();
  }
  if (!options.quiet && outcome === "converged") {
    const isJob = picture.service?.spec?.replicatedJob != null || picture.service?.spec?.globalJob != null;
    shell.remark(isJob ? "job complete" : shortfall === "" ? "verify: Service converged" : `verify: ${shortfall}`);
  }
}

/** The message without events older than the picture. */
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
