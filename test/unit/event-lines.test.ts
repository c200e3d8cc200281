// Lines of `muster events` about a change.
import test from "ava";
import { eventLine } from "../../cli/event-lines.ts";
import {
  Annotations,
  Object as Watched,
  Task,
  TaskState,
  TaskStatus,
  WatchMessage_Event,
} from "../../proto/gen/messages.ts";

test("tasks have events that state their outcome", (t) => {
  const status = TaskStatus.create({ state: TaskState.FAILED, err: "task: non-zero exit (1)" });
  const task = Task.create({ id: "task1", slot: 2, status, serviceAnnotations: Annotations.create({ name: "web" }) });
  const event = WatchMessage_Event.create({ action: 2, object: Watched.create({ task }) });
  const line = (asJson: boolean) => eventLine(event, { version: 7, asJson, showsVersion: false, now: 0 }) ?? "";
  t.regex(line(false), /task update .*task1.*failed/i);
  t.like(JSON.parse(line(true)), { kind: "task", action: "update", version: 7 });
});
