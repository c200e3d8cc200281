// A system knows whether anybody inspects its actors.
import test from "ava";
import { createActor, setup } from "xstate";
import { noteInspectors } from "../../runtime/steps/inspectors.ts";

test("a system is inspected from its first inspector to its last", (t) => {
  const actor = createActor(setup({}).createMachine({}));
  const system = actor.system as typeof actor.system & { isInspected?: boolean };
  noteInspectors(system);
  t.false(system.isInspected);
  const seen: string[] = [];
  const first = system.inspect(({ type }) => seen.push(`first ${type}`));
  const second = system.inspect(({ type }) => seen.push(`second ${type}`));
  first.unsubscribe();
  first.unsubscribe();
  t.true(system.isInspected);
  actor.start();
  t.true(seen.length > 0 && seen.every((each) => each.startsWith("second")), seen.join(", "));
  second.unsubscribe();
  t.false(system.isInspected);
});
