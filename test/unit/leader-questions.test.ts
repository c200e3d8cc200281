// Two managers on one simulated NATS: either answers for what only the leader knows.
import test from "ava";
import { answerQuestions, askLeader, askTimeoutMs, demandAnswer, type Asked } from "../../actors/leader-questions.ts";
import {
  type LeaderQuestion,
  PlanRebalanceRequest,
  PlanServiceRequest,
  PlanServiceResponse,
  Reason,
  WhyRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { addManager, type TestManager } from "./store-kit.ts";

const knowledge = {
  explainTask: (id: string) => [Reason.create({ waitingFor: `a node for ${id}` })],
  explainService: (id: string) => [Reason.create({ waitingFor: `tasks of ${id}` })],
  explainVolume: (id: string) => [Reason.create({ waitingFor: `plugin of ${id}` })],
  planService: () => PlanServiceResponse.create({ name: "planned", created: 3 }),
  planRebalance: (): never => {
    throw new RpcError(Status.NOT_FOUND, "service nobody not found");
  },
};

function pair(isAnswering = true) {
  const simulation = new Simulation({ seed: 7 });
  const managers: TestManager[] = [];
  for (const name of ["m1", "m2"]) {
    const startDuties = () => (isAnswering ? answerQuestions(found(name).env, knowledge) : { stop: () => undefined });
    managers.push(addManager(simulation, name, { startDuties }));
  }
  const found = (name: string): TestManager => managers.find(({ env }) => env.managerId === name) as TestManager;
  const { clock } = simulation;
  const run = (ms: number) => clock.run({ untilMs: clock.now() + ms });
  const ask = async ({ env, leadership }: TestManager, question: Partial<LeaderQuestion>): Promise<Asked> => {
    let answer: Asked | null = null;
    const leader = (): string | null => leadership.leader()?.managerId ?? null;
    void askLeader(env, { own: () => null, leader }, question).then((asked) => (answer = asked));
    await clock.run({ until: () => answer !== null, untilMs: clock.now() + 2 * askTimeoutMs });
    return answer as unknown as Asked;
  };
  const roles = async () => {
    await run(3_000);
    const leader = managers.find(({ leadership }) => leadership.isLeading()) as TestManager;
    return { leader, follower: managers.find((each) => each !== leader) as TestManager };
  };
  return { simulation, run, ask, roles };
}

test("a follower returns the leader's knowledge of a task and of a service", async (t) => {
  const { ask, roles } = pair();
  const { leader, follower } = await roles();
  t.like(await ask(follower, { why: WhyRequest.create({ subject: "task/t1" }) }), {
    kind: "answered",
    answer: { leader: leader.env.managerId, why: { reasons: [{ waitingFor: "a node for t1" }] } },
  });
  t.like(await ask(follower, { why: WhyRequest.create({ subject: "service/web" }) }), {
    answer: { why: { reasons: [{ waitingFor: "tasks of web" }] } },
  });
  const planned = await ask(follower, { planService: PlanServiceRequest.create({ serviceId: "web" }) });
  t.like(demandAnswer(planned, "planService"), { name: "planned", created: 3 });
});

test("the leader's errors reach the follower's caller with their status", async (t) => {
  const { ask, roles } = pair();
  const { follower } = await roles();
  const asked = await ask(follower, { planRebalance: PlanRebalanceRequest.create() });
  const error = t.throws(() => demandAnswer(asked, "planRebalance"), { instanceOf: RpcError });
  t.is(error.code, Status.NOT_FOUND);
  t.is(error.message, "service nobody not found");
  t.is((await ask(follower, {})).kind, "answered");
  t.is(t.throws(() => demandAnswer(asked, "planService"), { instanceOf: RpcError }).code, Status.NOT_FOUND);
});

test("without a leader the answer says so", async (t) => {
  const { ask, roles, run } = pair();
  const { leader, follower } = await roles();
  // Between a leader's death and the lease's expiry.
  leader.process.crash();
  await run(500);
  const before = await ask(follower, { why: WhyRequest.create({ subject: "task/t1" }) });
  t.is(before.kind, "unanswered");
  const error = t.throws(() => demandAnswer(before, "planService"), { instanceOf: RpcError });
  t.is(error.code, Status.UNAVAILABLE);
  await run(10_000);
  t.true(follower.leadership.isLeading());
  t.is((await ask(follower, { why: WhyRequest.create({ subject: "task/t1" }) })).kind, "answered");
});

test("a leader that has not begun its duties is named", async (t) => {
  const { ask, roles } = pair(false);
  const { leader, follower } = await roles();
  const asked = await ask(follower, { why: WhyRequest.create({ subject: "task/t1" }) });
  t.like(asked, { kind: "unanswered", reason: `leader ${leader.env.managerId} has not started its duties yet` });
});

test("a silent leader is awaited no longer than the timeout", async (t) => {
  const { ask, roles, simulation } = pair();
  const { leader, follower } = await roles();
  const startedAt = simulation.clock.now();
  for (const [from, to] of [
    ["nats", leader.env.managerId],
    [leader.env.managerId, "nats"],
  ] as const)
    simulation.network.cut(from, to);
  const asked = await ask(follower, { why: WhyRequest.create({ subject: "task/t1" }) });
  t.is(asked.kind, "unanswered");
  t.true(simulation.clock.now() - startedAt <= askTimeoutMs + 100);
});
