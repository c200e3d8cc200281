/** One trace through the steps of actors: from a command through the log and the orchestrator to the agent's task. */
import test from "ava";
import { createProcessFeed } from "../../actors/inspection/process-feed.ts";
import { ActorSelection, ControlService, CreateServiceRequest } from "../../proto/gen/messages.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService } from "../../simulation/workloads/services.ts";
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
  t.false(traced.has("a agentSession"), "a session has no trace");
});
