/**
 * Which parts of a node's task report go into the log.
 *
 * W1: a node sets only states that are a node's to set and that the task's life cycle (task.machine.ts) can reach.
 * W2: a status has at most `statusBytesMax` bytes: texts are cut and marked, and of a status that is still too large only the
 *     fields known to the log's readers are kept. So every accepted status fits into a record.
 * W3: reports that only repeat a state with another text count against the node's budget; a state advances only a few times
 *     in a task's life.
 */
import { ContainerStatus, PortConfig, PortStatus, TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import { maySet, nodeStates } from "../task.machine.ts";

/**
 * For a message or an error text, in UTF-16 units. Docker's errors have some hundred characters, and our agents add a few
 * hundred bytes of output.
 */
export const reportTextMax = 2_048;
/** For a whole encoded status, in bytes: two texts of `reportTextMax` at three bytes each, and 60 ports. */
export const statusBytesMax = 16 * 1_024;
/**
 * For one node's reports that only repeat a state with another text. Burst: health checks that change their text on a
 * thousand tasks, at about 200 bytes each. Rate: a hundredth of what a log on one small disk can take.
 */
export const repeatBudget = { bytesMax: 256 * 1_024, bytesPerS: 16 * 1_024 } as const;
/** Docker's ids have 64 characters; a driver's may be longer. */
const containerIdMax = 256;
/** More than services publish in practice; each takes about 40 bytes. */
const portsMax = 64;
const portNameMax = 64;

export type Examined =
  | { readonly kind: "taken"; readonly status: TaskStatus; readonly bytes: number; readonly isCut: boolean }
  /**
   * `overtaken`: the task has this state, or had it before. `foreign`: not a state that a node may set, or an unknown one. W1
   */
  | { readonly kind: "ignored"; readonly reason: "overtaken" | "foreign" };

/**
 * `before`: the task's state, or its state after a report that is waiting. The ledger checks again (`maySet`), because the task
 * may have advanced. Never throws.
 */
export function examineReport(before: TaskState, status: TaskStatus): Examined {
  const to = status.state;
  if (maySet(before, to, "node")) return { kind: "taken", ...bounded(status) };
  const isOvertaken = to < before && (nodeStates.has(to) || to < TaskState.ASSIGNED);
  return { kind: "ignored", reason: isOvertaken ? "overtaken" : "foreign" };
}

/** `text` with at most `max` UTF-16 units; the last ones say that it was cut, and its original length. */
export function cutText(text: string, max: number): string {
  if (text.length <= max) return text;
  const mark = `… (cut: it had ${text.length} characters)`;
  const kept = text.slice(0, Math.max(0, max - mark.length));
  // Never splits a surrogate pair.
  return (/[\uD800-\uDBFF]$/.test(kept) ? kept.slice(0, -1) : kept) + mark;
}

function bounded(status: TaskStatus): { status: TaskStatus; bytes: number; isCut: boolean } {
  const message = cutText(status.message, reportTextMax);
  const err = cutText(status.err, reportTextMax);
  const isCut = message !== status.message || err !== status.err;
  const cut = isCut ? TaskStatus.patch(status, { message, err }) : status;
  const bytes = TaskStatus.encode(cut).length;
  if (bytes <= statusBytesMax) return { status: cut, bytes, isCut };
  // Rebuilt: unknown fields are left out.
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
