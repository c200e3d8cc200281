import test from "ava";
import { createOperator, type OperatorSources } from "../../actors/operator.ts";
import {
  Annotations,
  FindVersionRequest,
  LeaderAnswer,
  Reason,
  StatusRequest,
  Task,
  Timestamp,
  WhyRequest,
  WhyResponse,
} from "../../proto/gen/messages.ts";
import type { Log } from "../../runtime/ports/index.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { createdService, spec, workerNode, world } from "../support/control.ts";
import { call, refusalOf } from "../support/manager.ts";
import { retainedOf } from "../support/retained.ts";

function sources(log: Log): OperatorSources {
  return {
    ask: () => Promise.reject(new Error("not asked")),
    explainNode: () => [],
    sessionState: () => "",
    log,
    history: { readAt: () => Promise.reject(new Error("not asked")), stream: () => undefined },
    leader: () => ({ id: "manager1", epoch: 4 }),
    addr: "192.0.2.1:2377",
    warnings: () => [],
    troubles: () => [],
    health: () => ({ healthy: true, progressAgeMs: 5 }),
    sessions: () => 2,
    askClock: () => Promise.reject(new Error("it is down")),
  };
}

test("why finds a task by slot, a service by name and a node by id prefix", async (t) => {
  const { control, env, seed, manager } = world();
  const { id } = await createdService(control, spec("web"));
  seed("node", workerNode("n1"), workerNode("n22"));
  const task = (taskId: string) =>
    Task.create({ id: taskId, slot: 2, serviceId: id, serviceAnnotations: Annotations.create({ name: "web" }) });
  seed("task", task("told"), task("tnew"));
  const reasons = [Reason.create({ waitingFor: "a node" })];
  const operator = createOperator(env, {
    ...sources(retainedOf(manager).log),
    ask: () =>
      Promise.resolve({ kind: "answered", answer: LeaderAnswer.create({ why: WhyResponse.create({ reasons }) }) }),
  }).handlers;
  const why = (subject: string) => operator.Why(WhyRequest.create({ subject }), call());
  t.like(await why("web.2"), { kind: "task", id: "tnew", reasons });
  t.like(await why("web"), { kind: "service", id, reasons });
  t.like(await why("n2"), { kind: "node", id: "n22" });
  t.is((await refusalOf(() => why("n")))?.code, Status.INVALID_ARGUMENT);
  t.is((await refusalOf(() => why("nothing")))?.code, Status.NOT_FOUND);
  t.like(await operator.Status(StatusRequest.create({}), call()), {
    managerId: "manager1",
    leaderId: "manager1",
    epoch: 4,
    healthy: true,
  });
});

test("searches by time take turns: a log with many readers answers each of them late", async (t) => {
  const { env, manager } = world();
  const { log } = retainedOf(manager);
  const started: ((bounds: { first: number; last: number }) => void)[] = [];
  const bounds: Log["bounds"] = () => new Promise((resolve) => void started.push(resolve));
  const operator = createOperator(env, sources({ ...log, bounds })).handlers;
  const find = () => operator.FindVersion(FindVersionRequest.create({ time: Timestamp.create({}) }), call());
  const found = [find(), find(), find()];
  for (const [at, each] of found.entries()) {
    await new Promise(setImmediate);
    t.is(started.length, at + 1);
    // Empty: the search ends at once.
    started[at]?.({ first: 1, last: 0 });
    t.like(await each, { version: 0 });
  }
});
