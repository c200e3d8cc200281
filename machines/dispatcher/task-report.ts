/**
 * What of a node's report of a task goes into the log.
 *
 * W1: a node sets only states that are a node's to set, and none that the task's life (task-life.ts) has no way to.
 * W2: a status has at most `statusBytesMax` bytes: texts are cut with a mark, and of what is still too large only what
 *     the log's readers know is kept. So whatever is taken fits into a record.
 * W3: what only repeats a state in other words costs the node's budget; a state that advances does so a few times in a
 *     task's life.
 */
import { ContainerStatus, PortConfig, PortStatus, TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import { mayAdvance, nodeStates } from "../task-life.ts";

/**
 * Of a message or an error text, in UTF-16 units. Docker's errors are some hundred characters, and the last lines of output that
 * our agents add a few hundred bytes.
 */
export const reportTextMax = 2_048;
/** Of a whole status, encoded, in bytes: two texts of `reportTextMax` at three bytes each, and 60 ports. */
export const statusBytesMax = 16 * 1_024;
/**
 * For what only repeats a state in other words, of one node. At once: health checks that change their words on a thousand tasks,
 * at some 200 bytes each. A second: a hundredth of what a log on one small disk takes.
 */
export const repeatBudget = { bytesMax: 256 * 1_024, bytesPerS: 16 * 1_024 } as const;
/** Docker's ids have 64 characters; a driver's may be longer. */
const containerIdMax = 256;
/** More than a service publishes in practice; each takes some 40 bytes. */
const portsMax = 64;
const portNameMax = 64;

export type Examined =
  | { readonly kind: "taken"; readonly status: TaskStatus; readonly bytes: number; readonly isCut: boolean }
  /** `overtaken`: what the task is already, or was before. `foreign`: no state of a node's, or no state at all. W1 */
  | { readonly kind: "ignored"; readonly reason: "overtaken" | "foreign" };

/** `before`: the state that the task has, or will have by a report that waits. Never throws. */
export function examineReport(before: TaskState, status: TaskStatus): Examined {
  const to = status.state;
  const isKnown = nodeStates.has(to);
  if (to < before && (isKnown || to <= TaskState.ASSIGNED)) return { kind: "ignored", reason: "overtaken" };
  // A node repeats that it was assigned a task before it has looked at it.
  const isSame = to === before && (isKnown || to === TaskState.ASSIGNED);
  if (!isSame && !mayAdvance(before, to, "node")) return { kind: "ignored", reason: "foreign" };
  return { kind: "taken", ...bounded(status) };
}

/** W1, for the ledger, which asks again when the task may have moved on. */
export function mayReport(before: TaskState, to: TaskState): boolean {
  return to === before ? nodeStates.has(to) || to === TaskState.ASSIGNED : mayAdvance(before, to, "node");
}

/** `text` with at most `max` UTF-16 units, of which the last ones say that it was cut, and how long it was. */
export function cutText(text: string, max: number): string {
  if (text.length <= max) return text;
  const mark = `… (cut: it had ${text.length} characters)`;
  const kept = text.slice(0, Math.max(0, max - mark.length));
  // Not between the halves of a pair.
  return (/[\uD800-\uDBFF]$/.test(kept) ? kept.slice(0, -1) : kept) + mark;
}

function bounded(status: TaskStatus): { status: TaskStatus; bytes: number; isCut: boolean } {
  const message = cutText(status.message, reportTextMax);
  const err = cutText(status.err, reportTextMax);
  const isCut = message !== status.message || err !== status.err;
  const cut = isCut ? TaskStatus.patch(status, { message, err }) : status;
  const bytes = TaskStatus.encode(cut).length;
  if (bytes <= statusBytesMax) return { status: cut, bytes, isCut };
  // Made anew: what nobody here knows is left out.
  const { container, portStatus, state, timestamp } = cut;
  const small = TaskStatus.create({
    timestamp,
    state,
    message,
    err,
    container:
      container === null
        ? null
        : ContainerStatus.create({
            containerId: container.containerId.slice(0, containerIdMax),
            pid: container.pid,
            exitCode: container.exitCode,
          }),
    portStatus:
      portStatus === null
        ? null
        : PortStatus.create({
            ports: portStatus.ports
              .slice(0, portsMax)
              .map(({ name, protocol, publishMode, publishedPort, targetPort }) =>
                PortConfig.create({
                  name: name.slice(0, portNameMax),
                  protocol,
                  publishMode,
                  publishedPort,
                  targetPort,
                }),
              ),
          }),
  });
  return { status: small, bytes: TaskStatus.encode(small).length, isCut: true };
}
