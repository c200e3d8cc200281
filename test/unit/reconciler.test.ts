// The host of a chart with a reconcile loop: when it gathers, and what it sends when it has stopped.
import test from "ava";
import { Reconciler, type Round } from "../../actors/orchestration/reconciler.ts";
import type { Environment } from "../../actors/environment.ts";
import { currentCause, inTrace, watchCauses, type Cause } from "../../runtime/observation/cause.ts";
import { gathering, reconciling, type Verdict } from "../../machines/reconcile.ts";

const loopMachine = reconciling().createMachine({
  id: "loop",
  context: { verdict: {}, isTouched: false },
  initial: "gathering",
  states: { gathering: gathering({}), deciding: {} },
});

function setUp(round: Round<Verdict> = { verdict: { nextMs: 5 } }) {
  const turns: (() => void)[] = [];
  const sent: string[] = [];
  let effects: Readonly<Record<string, (params: undefined, self: unknown) => void>> = {};
  const host = {
    start(_machine: unknown, _id: string, _input: unknown, owner: { effects: typeof effects }) {
      ({ effects } = owner);
      return actor;
    },
    later: (act: () => void) => act,
  };
  const clock = { soon: (act: () => void) => void turns.push(act) };
  /** Cause of each event that was sent. */
  const causes: Cause[] = [];
  let isStopped = false;
  // As the host's actors: one that was stopped gets nothing.
  const actor = {
    send: ({ type }: { readonly type: string }): void => {
      if (isStopped) return;
      sent.push(type);
      causes.push(currentCause());
    },
    stop(): void {
      isStopped = true;
      sent.push("stopped");
    },
  };
  const loop = new Reconciler({ host, clock } as unknown as Environment, {
    machine: loopMachine,
    id: "loop",
    input: undefined,
    decide: () => round,
  });
  return {
    loop,
    sent,
    causes,
    act: (name: string) => effects[name]?.(undefined, actor),
    nextTurn: () => turns.splice(0).forEach((callback) => callback()),
  };
}

test("a round is due when the turn is over", (t) => {
  const { act, nextTurn, sent } = setUp();
  act("gather");
  t.deepEqual(sent, []);
  nextTurn();
  t.deepEqual(sent, ["round.due"]);
});

test("a loop that has stopped by then gets no event", (t) => {
  const { act, loop, nextTurn, sent } = setUp();
  act("gather");
  loop.stop();
  nextTurn();
  act("decide");
  loop.wake();
  t.deepEqual(sent, ["stopped"]);
});

test("the changes of a commit wake it once, at the end", (t) => {
  const { loop, sent } = setUp();
  loop.commitEnded();
  loop.note();
  loop.note();
  t.deepEqual(sent, []);
  loop.commitEnded();
  loop.commitEnded();
  t.deepEqual(sent, ["work.arrived"]);
});

test("a decision is made before its write begins, and a round without one is done", (t) => {
  const done = setUp();
  done.act("decide");
  t.deepEqual(done.sent, ["round.done"]);
  const order: string[] = [];
  const { act, sent } = setUp({ verdict: {}, write: () => void order.push(...sent, "write") });
  act("decide");
  t.deepEqual(order, ["decision.made", "write"]);
});

test("a round belongs to everything that was noted since the last one, while somebody watches", (t) => {
  const watching = watchCauses();
  t.teardown(() => watching.unsubscribe());
  const { act, causes, loop, nextTurn } = setUp();
  const traceOf = (digit: string): string => `00-${digit.repeat(32)}-${"b".repeat(16)}-01`;
  inTrace(traceOf("1"), () => loop.note());
  loop.commitEnded();
  act("gather");
  // Another commit of the same turn.
  inTrace(traceOf("2"), () => loop.note());
  loop.commitEnded();
  nextTurn();
  act("gather");
  nextTurn();
  t.deepEqual(
    causes.map(({ linked, traceparent }) => [traceparent, ...linked]),
    [[traceOf("1")], ["", traceOf("1"), traceOf("2")], ["", traceOf("1"), traceOf("2")], [""]],
  );
});
