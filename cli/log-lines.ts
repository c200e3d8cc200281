/** Lines of task output as Docker's CLI prints them: `<task>@<node>    | <line>`. */
import { LogStream, type LogMessage, type Timestamp } from "../proto/gen/messages.ts";

/** As Docker shortens ids. */
const shortIdLength = 12;

export interface LineFormat {
  readonly timestamps: boolean;
  readonly details: boolean;
  /** The line as it was written, without the task. */
  readonly raw: boolean;
  readonly noTrunc: boolean;
  readonly noTaskIds: boolean;
  /** How many digits the highest slot has. */
  readonly slotWidth: number;
}

/** What is known of a task; a name is its id where nothing better is. */
export interface LineOrigin {
  readonly serviceName: string;
  readonly nodeName: string;
  /** Null for a task that is gone. */
  readonly slot: number | null;
}

/** RFC 3339 with nine digits, which columns need. */
export function timestampText(time: Timestamp | null): string {
  const { nanos, seconds } = time ?? { nanos: 0, seconds: 0 };
  return `${new Date(seconds * 1_000).toISOString().slice(0, 19)}.${String(nanos).padStart(9, "0")}Z`;
}

/** `web.1.abcdefghijkl@host`, and spaces up to the longest slot. */
export function originText(taskId: string, { nodeName, serviceName, slot }: LineOrigin, format: LineFormat): string {
  const id = format.noTrunc ? taskId : taskId.slice(0, shortIdLength);
  const parts = [serviceName];
  if (slot !== null) parts.push(String(slot));
  // A task that is gone has nothing else to tell it by.
  if (!format.noTaskIds || slot === null) parts.push(id);
  const padding = slot === null ? 0 : format.slotWidth - String(slot).length;
  return `${parts.join(".")}@${nodeName}${" ".repeat(Math.max(0, padding))}`;
}

/** `k=v` each, as in a query string, by key. */
function detailsText(details: readonly (readonly [string, string])[]): string {
  return details
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`)
    .join(",");
}

/** What stands before the line, and the line. */
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
