/**
 * The trace to which each change of a commit belongs, for those who watch actors: a record of the log has the changes of many
 * requests. A task's changes belong to the trace of the request that created it, whichever batch wrote them.
 */
import { Causes, inCause, isWatched, noCause, type Cause } from "../observation/cause.ts";
import { traceparentLabel } from "../telemetry/tracing.ts";
import type { Task } from "../../proto/gen/messages.ts";
import type { Commit } from "./store.ts";

/** Call of a step that a commit leads to, if no actor does. */
const call = "the log";

const untraced: Cause = { ...noCause, call };

/** W3C trace context of the request that created the task; empty if it was not traced. */
export const traceparentOfTask = (task: Task): string => task.annotations?.labels[traceparentLabel] ?? "";

/** By commit: each listener asks for them. */
const known = new WeakMap<Commit, readonly string[]>();

/** Trace contexts of the changes in their order, empty for an untraced one. Null while nobody watches. */
function tracesOf(commit: Commit): readonly string[] | null {
  if (!isWatched()) return null;
  let traces = known.get(commit);
  if (traces === undefined) known.set(commit, (traces = found(commit)));
  return traces;
}

function found({ causes, changes }: Commit): readonly string[] {
  let [cause, rest] = [0, causes[0]?.changes ?? 0];
  return changes.map((change) => {
    while (rest === 0 && cause < causes.length) rest = causes[(cause += 1)]?.changes ?? 0;
    rest -= 1;
    const own = change.table === "task" ? traceparentOfTask(change.object) : "";
    return own === "" ? (causes[cause]?.traceparent ?? "") : own;
  });
}

/** Calls `act` as the work of all changes of a commit together. */
export function inCommit(commit: Commit, act: () => void): void {
  const traces = tracesOf(commit);
  if (traces === null) return act();
  const causes = new Causes();
  for (const trace of traces) causes.addTrace(trace);
  inCause({ ...causes.take(), call }, act);
}

/** Calls `act` with each change of a commit, as the work of that change alone. */
export function eachChange(commit: Commit, act: (change: Commit["changes"][number]) => void): void {
  const traces = tracesOf(commit);
  for (const [at, change] of commit.changes.entries()) {
    if (traces === null) act(change);
    else {
      const traceparent = traces[at] ?? "";
      inCause(traceparent === "" ? untraced : { ...untraced, traceparent }, () => act(change));
    }
  }
}

/** Calls `act` as work of no change: what it sends belongs to those that were noted (`Causes`). */
export const inNoChange = (act: () => void): void => (isWatched() ? inCause(untraced, act) : act());
