/** Lines of task output, for the JSON API's clients. */
import { LogStream, type LogMessage } from "../../../proto/gen/messages.ts";
import type { Store } from "../../../runtime/store/store.ts";
import { unitName } from "../entities/names.ts";
import type { Json } from "../results.ts";
import { timeText } from "./muster-results.ts";

const decoder = new TextDecoder();

/** Notices of a manager belong to no task. */
export function isNotice({ context }: LogMessage): boolean {
  return (context?.taskId ?? "") === "";
}

export function textOf({ data }: LogMessage): string {
  return decoder.decode(data);
}

/** The unit that a task is an attempt of; empty if the task was removed. */
export type UnitNames = (taskId: string) => string;

export function unitNames(store: Store): UnitNames {
  return (taskId) => {
    const task = store.get("task", taskId);
    return task === undefined ? "" : unitName(task, store.get("service", task.serviceId));
  };
}

export function shownLine(message: LogMessage, nameOf: UnitNames): Json {
  const { context, stream, timestamp } = message;
  return {
    unit: nameOf(context?.taskId ?? ""),
    "task-id": context?.taskId ?? "",
    "instance-id": context?.nodeId ?? "",
    time: timeText(timestamp),
    stream: stream === LogStream.LOG_STREAM_STDERR ? "stderr" : "stdout",
    text: textOf(message),
  };
}
