/**
 * The tasks that a service keeps on a node that is DOWN, because the node may only be cut off: they may still run there. The
 * settings are labels of the service, so that stock clients can set them, too.
 *
 * K1: a task is kept if it was running when its node went DOWN, is still wanted, and the node exists and is not drained. With
 *     `replace`, the default, it is kept until `muster.disconnect-after` has passed; with `keep`, until the node returns.
 * K2: a node that returns in time goes on with its task. After that the replacement stays, and the node stops the old task.
 * K3: a kept task does not become ORPHANED (W2 of dispatcher/node-watch.machine.ts): the node could no longer go on with it.
 */
import { leftOf, type LogTimes } from "../elapsed.ts";
import { goDurationMs } from "../../lib/go-duration.ts";
import { isDrained, isLive } from "../node.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { isRunning, isWanted } from "../task.ts";
import type { Node, Service, ServiceSpec, Task } from "../../proto/gen/messages.ts";

/** Names of the labels. */
export const disconnectLabel = {
  /** `replace` (default) or `keep`. */
  mode: "muster.on-disconnect",
  /** A duration such as `10m`, of 0 (default) to `disconnectAfterMsMax`; only with `replace`. */
  after: "muster.disconnect-after",
} as const;

/** 24 h in milliseconds: after that the tasks of a DOWN node become ORPHANED. */
const disconnectAfterMsMax = 24 * 60 * 60 * 1_000;

const modes: readonly string[] = ["replace", "keep"];

function readAfterMs(text: string): number | null {
  const ms = goDurationMs(text);
  return ms === null || ms > disconnectAfterMsMax ? null : ms;
}

/** How long a task stays on a node that is DOWN, in milliseconds; Infinity: until the node returns. */
function keepMs(service: Service | undefined): number {
  const labels = service?.spec?.annotations?.labels ?? {};
  if (labels[disconnectLabel.mode] === "keep") return Number.POSITIVE_INFINITY;
  return readAfterMs(labels[disconnectLabel.after] ?? "") ?? 0;
}

interface KeepingWorld {
  readonly nowMs: number;
  readonly nodeOf: (id: string) => Node | undefined;
  readonly times: LogTimes;
}

/**
 * Until when the service keeps the task on its DOWN node, in milliseconds since the epoch (K1). Infinity: until the node returns;
 * null: it does not keep it.
 */
export function keptUntilMs(task: Task, service: Service | undefined, world: KeepingWorld): number | null {
  const node = world.nodeOf(task.nodeId);
  if (node === undefined || isLive(node) || isDrained(node) || !isRunning(task) || !isWanted(task)) return null;
  const spanMs = keepMs(service);
  if (spanMs === Number.POSITIVE_INFINITY) return spanMs;
  // The node's record changes when it goes DOWN.
  const leftMs = leftOf(world.times.changedMs(node), spanMs, world.nowMs);
  return leftMs > 0 ? world.nowMs + leftMs : null;
}

export function checkDisconnectLabels(spec: ServiceSpec): Refusal | null {
  const labels = spec.annotations?.labels ?? {};
  const mode = labels[disconnectLabel.mode];
  if (mode !== undefined && !modes.includes(mode))
    return invalid(`invalid value '${mode}' for label ${disconnectLabel.mode}: expected one of ${modes.join(", ")}`);
  const after = labels[disconnectLabel.after];
  if (after === undefined) return null;
  if (readAfterMs(after) === null) {
    const wanted = "a duration such as 10m, at most 24h (tasks of a node that is down for longer are orphaned)";
    return invalid(`invalid value '${after}' for label ${disconnectLabel.after}: expected ${wanted}`);
  }
  if (mode !== "keep") return null;
  return invalid(
    `label ${disconnectLabel.after} has no effect with ${disconnectLabel.mode}=keep: remove one of the two labels`,
  );
}
