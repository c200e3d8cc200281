import test from "ava";
import { assign, createActor, setup } from "xstate";

/** Warnings during a step of an actor with this effect. */
function warningsOf(effect: () => void): readonly string[] {
  const written: string[] = [];
  const write = process.stderr.write;
  process.stderr.write = (text) => written.push(String(text)) > 0;
  try {
    createActor(setup({ actions: { effect } }).createMachine({ entry: "effect" })).start();
  } finally {
    process.stderr.write = write;
  }
  return written;
}

test.serial("XState does not warn of an effect that starts an actor", (t) => {
  const other = setup({ types: { context: {} as { count: number } } }).createMachine({ context: () => ({ count: 1 }) });
  t.deepEqual(
    warningsOf(() => void createActor(other).start()),
    [],
  );
});

test.serial("it still warns of an effect that calls assign()", (t) => {
  const [warning = ""] = warningsOf(() => void assign({}));
  t.regex(warning, /Custom actions should not call `assign\(\)`/);
});
