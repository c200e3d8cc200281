// Large decisions on their way to the ledger: in parts, with related changes in one part.
import test from "ava";
import { Writer } from "../../actors/orchestration/part.ts";
import type { Environment } from "../../actors/environment.ts";
import { desired } from "../../machines/task-moves.ts";
import { Operation, StoreObject, Task, TaskState } from "../../proto/gen/messages.ts";

interface Step {
  readonly kind: "desire" | "create";
  readonly slot: number;
}

function setUp() {
  const turns: (() => void)[] = [];
  const proposals: (readonly Operation[])[] = [];
  const answers: (() => void)[] = [];
  const env = {
    clock: { soon: (callback: () => void) => void turns.push(callback) },
    proposer: {
      propose: ({ operations }: { operations: readonly Operation[] }) => {
        proposals.push(operations);
        return new Promise((resolve) => answers.push(() => resolve({ kind: "committed" })));
      },
    },
  } as unknown as Environment;
  const made: number[] = [];
  const operationOf = ({ kind, slot }: Step): Operation => {
    made.push(slot);
    const task = Task.create({ id: `t${slot}`, slot });
    return kind === "desire"
      ? desired(task, TaskState.SHUTDOWN)
      : Operation.create({ create: StoreObject.create({ task }) });
  };
  const settle = async (): Promise<void> => {
    for (const answer of answers.splice(0)) answer();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { writer: new Writer(env), turns, proposals, made, operationOf, settle };
}

/** Each slot's task ends and gets a successor: pairs that belong together. */
const replacements: readonly Step[] = Array.from({ length: 1_500 }, (_, slot) => [
  { kind: "desire" as const, slot },
  { kind: "create" as const, slot },
]).flat();

test("W2: a large decision is computed part by part, and no part separates a task's end from its successor", async (t) => {
  const { writer, turns, proposals, made, operationOf, settle } = setUp();
  // A single change shifts the pairs to where a plain cut would separate them.
  const steps: readonly Step[] = [{ kind: "desire", slot: 9_999 }, ...replacements];
  let settled = 0;
  writer.writeSteps(steps, operationOf, () => (settled += 1));
  t.true(made.length <= 1_000, "others have their turn before the rest is computed");
  while (turns.length > 0 || proposals.flat().length < steps.length) {
    turns.shift()?.();
    t.is(settled, 0);
    await settle();
  }
  await settle();
  t.is(settled, 1);
  t.is(proposals.flat().length, steps.length);
  t.deepEqual(
    made,
    steps.map(({ slot }) => slot),
  );
  for (const operations of proposals) {
    t.true(operations.length <= 1_000);
    t.is(operations[0]?.create, null, "a part begins with an end, not with a successor");
  }
});

test("a stopped writer computes no more of a decision", (t) => {
  const { writer, turns, made, operationOf } = setUp();
  writer.writeSteps(replacements, operationOf, () => t.fail());
  const before = made.length;
  writer.stop();
  for (const turn of turns.splice(0)) turn();
  t.is(made.length, before);
  t.true(before > 0 && before < replacements.length);
});
