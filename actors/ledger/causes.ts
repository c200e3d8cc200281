/** Calls and traces of proposals, for those who watch actors. */
import { Origin, type ProposeRequest, type Task } from "../../proto/gen/messages.ts";
import { traceparentOfTask } from "../../runtime/store/change-traces.ts";

/** The call that asks for it, such as `Control.CreateService`, or the part of a manager that does; empty: unknown. */
export function callOf({ caller, origin }: ProposeRequest): string {
  if (caller !== null) return caller.method;
  return origin === Origin.ORIGIN_UNKNOWN ? "" : (originNames.get(origin) ?? "");
}

/** Such as `node-watch`. */
const originNames: ReadonlyMap<number, string> = new Map(
  Object.entries(Origin).map(([name, origin]) => [
    origin as number,
    name
      .replace(/^ORIGIN_/, "")
      .replaceAll("_", "-")
      .toLowerCase(),
  ]),
);

/**
 * Trace contexts of a proposal, with repetitions; empty ones are none. One of the system may serve many requests: those of its tasks
 * count, as for the changes that it leads to.
 */
export function* tracesOfProposal(
  { operations, traceparent }: ProposeRequest,
  taskOf: (id: string) => Task | undefined,
): Iterable<string> {
  let isOfTasks = false;
  for (const { create, task: patch } of operations) {
    const task = create?.task ?? (patch === null ? undefined : taskOf(patch.id));
    if (task === undefined) continue;
    isOfTasks = true;
    yield traceparentOfTask(task);
  }
  if (!isOfTasks) yield traceparent;
}
