/** Lines of tasks' output, as the JSON API's clients read them. */
import { LogStream, type LogMessage } from "../../../proto/gen/messages.ts";
import type { Json } from "../results.ts";
import { timeText } from "./muster-results.ts";

const decoder = new TextDecoder();

/** What a manager has to say itself is of no task. */
export function isNotice({ context }: LogMessage): boolean {
  return (context?.taskId ?? "") === "";
}

export function textOf({ data }: LogMessage): string {
  return decoder.decode(data);
}

export function shownLine(message: LogMessage): Json {
  const { context, stream, timestamp } = message;
  return {
    "task-id": context?.taskId ?? "",
    "instance-id": context?.nodeId ?? "",
    time: timeText(timestamp),
    stream: stream === LogStream.LOG_STREAM_STDERR ? "stderr" : "stdout",
    text: textOf(message),
  };
}
