import test from "ava";
import { sendSoon } from "../../actors/send-soon.ts";
import type { Clock } from "../../runtime/ports/index.ts";

function setUp() {
  const turns: (() => void)[] = [];
  const sent: string[] = [];
  const actor = { status: "active", getSnapshot: () => actor, send: (event: string) => void sent.push(event) };
  sendSoon({ soon: (callback) => void turns.push(callback) } as Clock, actor, "round.due");
  return { actor, sent, nextTurn: () => turns.splice(0).forEach((callback) => callback()) };
}

test("an event is sent when the turn is over", (t) => {
  const { sent, nextTurn } = setUp();
  t.deepEqual(sent, []);
  nextTurn();
  t.deepEqual(sent, ["round.due"]);
});

test("an actor that has stopped by then gets no event", (t) => {
  const { actor, sent, nextTurn } = setUp();
  actor.status = "stopped";
  nextTurn();
  t.deepEqual(sent, []);
});
