/** Lines of task output as Docker's CLI prints them: `<task>@<node>    | <line>`. */
import { LogStream, type LogMessage, type Timestamp } from "../proto/gen/messages.ts";

/** Docker's length of ids in log lines. */
const shortIdLength = 12;

export interface LineFormat {
  readonly timestamps: boolean;
  readonly details: boolean;
  /** The line without its origin. */
  readonly raw: boolean;
  readonly noTrunc: boolean;
  readonly noTaskIds: boolean;
  /** Number of digits of the highest slot. */
  readonly slotWidth: number;
}

/** Names of a task's service and node; an id where the name is unknown. */
export interface LineOrigin {
  readonly serviceName: string;
  readonly nodeName: string;
  /** Null for a removed task. */
  readonly slot: number | null;
}

/** RFC 3339 with nine fractional digits, so that columns align. */
export function timestampText(time: Timestamp | null): string {
  const { nanos, seconds } = time ?? { nanos: 0, seconds: 0 };
  return `${new Date(seconds * 1_000).toISOString().slice(0, 19)}.${String(nanos).padStart(9, "0")}Z`;
}

/** `web.1.abcdefghijkl@host`, padded to the longest slot. */
export function originText(taskId: string, { nodeName, serviceName, slot }: LineOrigin, format: LineFormat): string {
  const id = format.noTrunc ? taskId : taskId.slice(0, shortIdLength);
  const parts = [serviceName];
  if (slot !== null) parts.push(String(slot));
  // A removed task has only its id.
  if (!format.noTaskIds || slot === null) parts.push(id);
  const padding = slot === null ? 0 : format.slotWidth - String(slot).length;
  return `${parts.join(".")}@${nodeName}${" ".repeat(Math.max(0, padding))}`;
}

/** `k=v` pairs as in a query string, sorted by key. */
function detailsText(details: readonly (readonly [string, string])[]): string {
  return details
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`)
    .join(",");
}

/** The line with its prefix. */
export function lineText(message: LogMessage, origin: string, format: LineFormat): Uint8Array {
  const { attrs, context, data, timestamp } = message;
  let head = format.timestamps ? `${timestampText(timestamp)} ` : "";
  const details = attrs.map(({ key, value }) => [key, value] as const);
  if (format.raw) {
    if (format.details) {
      const own = [
        ["com.docker.swarm.node.id", context?.nodeId ?? ""],
        ["com.docker.swarm.service.id", context?.serviceId ?? ""],
        ["com.docker.swarm.task.id", context?.taskId ?? ""],
      ] as const;
      head += `${detailsText([...details, ...own])} `;
    }
  } else {
    head += `${origin}    | `;
    if (format.details) head += `${detailsText(details)} `;
  }
  return head === "" ? data : Buffer.concat([Buffer.from(head), data]);
}

export function outputOf(stream: LogStream): "out" | "err" {
  return stream === LogStream.LOG_STREAM_STDOUT ? "out" : "err";
}
