// Moves of a rehearsal: what counts as a task that found no node.
import test from "ava";
import { Task, TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import { Moves } from "../../simulation/rehearsal/moves.ts";

const task = (id: string, nodeId: string, state: TaskState, desiredState: TaskState = TaskState.RUNNING): Task =>
  Task.create({ id, serviceId: "web", slot: 1, nodeId, desiredState, status: TaskStatus.create({ state }) });

/** A task of slot 1 failed on node n1, and `next`, which has no node, follows it. */
function afterFailure(next: Task): Moves {
  const failed = task("t1", "n1", TaskState.FAILED, TaskState.SHUTDOWN);
  const store: Pick<Store, "get" | "tasksAt"> = { get: () => undefined, tasksAt: () => [failed, next] };
  const moves = new Moves();
  moves.note(next, true, 1_000, store as Store);
  // A rollback, or a user, wants it no longer.
  if (next.id === "shut") moves.note({ ...next, desiredState: TaskState.SHUTDOWN }, false, 2_000, store as Store);
  if (next.id === "removed") moves.forget(next.id);
  if (next.id === "placed") moves.note({ ...next, nodeId: "n2" }, false, 2_000, store as Store);
  return moves;
}

test("a restarted task that is stopped or removed before a node takes it has not failed to find one", (t) => {
  const to = (id: string): readonly (string | null)[] =>
    afterFailure(task(id, "", TaskState.PENDING))
      .of("web", 0)
      .map((move) => move.to);
  t.deepEqual(to("waits"), [null]);
  t.deepEqual(to("shut"), [""]);
  t.deepEqual(to("removed"), [""]);
  t.deepEqual(to("placed"), ["n2"]);
});
