/** One trace through the steps of actors: from a command through the log, orchestrator and scheduler to the driver's task. */
import test from "ava";
import { createProcessFeed } from "../../actors/inspection/process-feed.ts";
import {
  ActorSelection,
  ControlService,
  CreateServiceRequest,
  GetServiceRequest,
  UpdateServiceRequest,
  type ActorFeed,
} from "../../proto/gen/messages.ts";
import { outside, sequenceOf } from "../../ui/model/sequence.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService, updatedAgain } from "../../simulation/workloads/services.ts";
import { followHosts } from "../../simulation/transitions.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const traceparent = `00-${traceId}-b7ad6b7169203331-01`;

test("the steps that a command causes carry its trace, in managers and agents, and no others do", async (t) => {
  t.timeout(120_000);
  const world = new ScriptedWorld({ seed: 3, managers: 1, agents: 1, tasks: steadyTasks });
  const { clock, trace } = world.scene.simulation;
  const traced = new Map<string, Set<string>>();
  let steps = 0;
  const log = { debug() {}, info() {}, warn() {}, error: (_: object, text: string) => world.scene.fail(text) };
  followHosts(trace, (host, who) => {
    createProcessFeed({ host, clock, telemetry: { log }, process: who, hostname: who }).listen(
      ActorSelection.create(),
      {
        ready: () => true,
        onFeed(feed) {
          steps += feed.steps.length;
          for (const step of feed.steps) {
            if (step.traceId !== traceId) continue;
            const key = `${who[0]} ${step.machine}`;
            traced.set(key, (traced.get(key) ?? new Set()).add(step.event));
          }
        },
      },
    );
  });
  await world.found();
  await world.pass(2_000);
  t.is(traced.size, 0);
  const request = CreateServiceRequest.create({ spec: simService({ name: "web", replicas: 1 }) });
  const options = { timeoutMs: 10_000, traceparent };
  await world.answered("the service", world.dial().unary(ControlService.methods.CreateService, request, options));
  await world.pass(5_000);
  for (const [key, event] of [
    ["m ledger", "work.arrived"],
    ["m replicated", "xstate.init"],
    ["m replicated", "round.due"],
    ["m allocator", "round.due"],
    ["a agentTask", "xstate.init"],
    ["a agentTask", "run.started"],
  ] as const)
    t.true(
      traced.get(key)?.has(event),
      `${key} ${event}: ${[...traced].map(([k, v]) => `${k}: ${[...v].join(" ")}`).join("; ")}`,
    );
  t.true(steps > 200);
  t.deepEqual([...(traced.get("a agentSession") ?? [])], ["assignments.received"], "a session itself has no trace");
});

test("the sequence of one of 21 concurrent commands leads to the start of its own task, and to no other's", async (t) => {
  t.timeout(240_000);
  const world = new ScriptedWorld({ seed: 4, managers: 3, agents: 2, tasks: steadyTasks });
  const { clock, trace } = world.scene.simulation;
  const feeds: ActorFeed[] = [];
  const log = { debug() {}, info() {}, warn() {}, error: (_: object, text: string) => world.scene.fail(text) };
  followHosts(trace, (host, process) => {
    const listener = { ready: () => true, onFeed: (feed: ActorFeed) => void feeds.push(feed) };
    createProcessFeed({ host, clock, telemetry: { log }, process, hostname: process }).listen(
      ActorSelection.create(),
      listener,
    );
  });
  await world.found();
  await world.pass(2_000);
  const follower = world.managers.all.find((each) => each !== world.leader);
  const count = 21;
  const traceOf = (at: number): string => `${at}`.padStart(32, "c");
  const updateOf = (at: number): string => `${at}`.padStart(32, "d");
  const created = Array.from({ length: count }, async (_, at) => {
    const request = CreateServiceRequest.create({ spec: simService({ name: `web${at}`, replicas: 1 }) });
    const options = { timeoutMs: 10_000, traceparent: `00-${traceOf(at)}-b7ad6b7169203331-01` };
    const channel = world.dial(at % 2 === 0 ? follower : world.leader);
    return (await channel.unary(ControlService.methods.CreateService, request, options)).service?.id ?? "";
  });
  const services = await world.answered("the services", Promise.all(created));
  await world.pass(10_000);
  const steps = feeds.flatMap(({ process, steps: taken }) => taken.map((step) => ({ process, step })));
  const store = world.leader?.running?.store;
  const tasks = services.map((serviceId) => [...(store?.tasksByService(serviceId) ?? [])][0]?.id ?? "");
  t.is(new Set(tasks).size, count);
  const owned = new Set([
    ...services.flatMap((id) => [`replicated/${id}`, `rollout/${id}`]),
    ...tasks.map((id) => `agent-task/${id}`),
  ]);
  for (let at = 0; at < count; at += 1) {
    const { messages } = sequenceOf(steps, traceOf(at));
    const own = [`replicated/${services[at]}`, `agent-task/${tasks[at]}`, `rollout/${services[at]}`];
    t.deepEqual(
      messages.filter(({ actor }) => owned.has(actor) && !own.includes(actor)),
      [],
      "no step of another service or task",
    );
    const way = [
      ["ledger", "work.arrived"],
      [own[0], "xstate.init"],
      ["allocator/", "round.due"],
      ["scheduler/", "round.due"],
      ["assignments/", "changes.noted"],
      ["agent-session/", "assignments.received"],
      [own[1], "xstate.init"],
      [own[1], "run.started"],
    ] as const;
    let from = 0;
    for (const [actor = "", event] of way) {
      const found = messages.findIndex(
        (message, place) => place >= from && message.actor.startsWith(actor) && message.event === event,
      );
      t.true(found >= from, `${actor} ${event} of trace ${at} after ${messages[from]?.actor} ${messages[from]?.event}`);
      from = found;
    }
    t.regex(messages[0]?.from ?? "", / Control\.CreateService$/);
    const unknown = messages.filter((message) => message.from === outside);
    t.deepEqual(
      unknown.map(({ actor, event }) => `${actor} ${event}`),
      [],
      "each event comes from an actor or a call",
    );
  }
  // A node is registered after a wait for the log.
  const registered = steps.filter(({ step }) => step.event === "registration.committed");
  t.deepEqual(
    registered.map(({ step }) => step.call),
    ["Dispatcher.Session", "Dispatcher.Session"],
  );
  // Updates of all at once, each in a trace of its own.
  const channel = world.dial();
  const { GetService, UpdateService } = ControlService.methods;
  const updated = services.map(async (serviceId, at) => {
    const { service } = await channel.unary(GetService, GetServiceRequest.create({ serviceId }), { timeoutMs: 10_000 });
    const spec = updatedAgain(simService({ name: `web${at}`, replicas: 1 }));
    const request = UpdateServiceRequest.create({ serviceId, spec, serviceVersion: service?.meta?.version ?? null });
    const options = { timeoutMs: 10_000, traceparent: `00-${updateOf(at)}-b7ad6b7169203331-01` };
    await channel.unary(UpdateService, request, options);
  });
  await world.answered("the updates", Promise.all(updated));
  await world.pass(30_000);
  const later = feeds.flatMap(({ process, steps: taken }) => taken.map((step) => ({ process, step })));
  const rollouts = later.filter(({ step }) => step.actor.startsWith("rollout/"));
  t.true(rollouts.length > count, `${rollouts.length} steps of rollouts`);
  for (let at = 0; at < count; at += 1)
    t.deepEqual(
      sequenceOf(later, updateOf(at)).messages.filter(
        ({ actor }) => actor.startsWith("rollout/") && actor !== `rollout/${services[at]}`,
      ),
      [],
      "no step of another rollout",
    );
});
