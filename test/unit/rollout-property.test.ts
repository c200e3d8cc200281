// Random rollouts: any configuration, any sequence of good and bad updates, operators' actions and changes of leader.
import test from "ava";
import fc from "fast-check";
import { controlRollout } from "../../actors/orchestration/rollout-control.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { rolledBackService } from "../../machines/orchestration/service-update.ts";
import {
  ControlRolloutRequest,
  ControlRolloutRequest_Action as Action,
  Duration,
  Operation,
  ReplicatedService,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  StoreObject,
  TaskSpec,
  TaskState,
  UpdateConfig,
  UpdateConfig_FailureAction as FailureAction,
  UpdateConfig_UpdateOrder as Order,
  UpdateStatus_UpdateState,
  type Service,
} from "../../proto/gen/messages.ts";
import { RpcError } from "../../runtime/ports/rpc.ts";
import { findMovingRollout, RolloutChecks } from "../../simulation/invariants/rollout.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";
import { call } from "../support/manager.ts";

type Step =
  | { readonly kind: "update"; readonly isBad: boolean; readonly replicas: number | null }
  | { readonly kind: "back" }
  | { readonly kind: "act"; readonly action: Action }
  | { readonly kind: "leader" }
  | { readonly kind: "wait" };

const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("update" as const),
      isBad: fc.boolean(),
      replicas: fc.option(fc.integer({ min: 1, max: 5 })),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "back" as const }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("act" as const),
      action: fc.constantFrom(Action.PAUSE, Action.RESUME, Action.STEP, Action.ABORT),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "leader" as const }) },
  { weight: 2, arbitrary: fc.constant({ kind: "wait" as const }) },
);

const config = (order: Order) =>
  fc
    .record({
      parallelism: fc.nat({ max: 3 }),
      delay: fc.nat({ max: 2 }),
      monitor: fc.nat({ max: 3 }),
      failureAction: fc.constantFrom(FailureAction.PAUSE, FailureAction.CONTINUE, FailureAction.ROLLBACK),
      maxFailureRatio: fc.constantFrom(0, 0, 0.5),
    })
    .map(({ delay, monitor, ...rest }) =>
      UpdateConfig.create({
        ...rest,
        order,
        delay: Duration.create({ seconds: delay }),
        monitor: Duration.create({ seconds: monitor }),
      }),
    );

const scenarios = fc.constantFrom(Order.STOP_FIRST, Order.START_FIRST).chain((order) =>
  fc.record({
    order: fc.constant(order),
    update: config(order),
    rollback: config(order),
    replicas: fc.integer({ min: 1, max: 5 }),
    // Delay after each step, in milliseconds: so short that some steps hit a rollout in progress.
    steps: fc.array(fc.tuple(steps, fc.constantFrom(0, 3, 500, 2_000, 9_000)), { minLength: 1, maxLength: 8 }),
  }),
);

/** Slots with two running tasks. */
function doubled(cluster: TestCluster): readonly number[] {
  const running = cluster.tasks().filter(({ status }) => status?.state === TaskState.RUNNING);
  const slots = running.map(({ slot }) => slot);
  return slots.filter((slot, at) => slots.indexOf(slot) !== at);
}

async function take(cluster: TestCluster, bad: Set<number>, step: Step): Promise<void> {
  const service = cluster.store.get("service", "web") as Service;
  switch (step.kind) {
    case "update": {
      const task = service.spec?.task as TaskSpec;
      // No two specs are alike.
      const forceUpdate = (service.meta?.version?.index ?? 0) + 1;
      if (step.isBad) bad.add(forceUpdate);
      const replicas = step.replicas ?? service.spec?.replicated?.replicas ?? 1;
      return cluster.updateService("web", (spec) =>
        ServiceSpec.patch(spec, {
          task: TaskSpec.patch(task, { forceUpdate }),
          replicated: ReplicatedService.create({ replicas }),
        }),
      );
    }
    case "back": {
      const back = rolledBackService(service, cluster.clock.now());
      if (back.kind === "refused") return;
      return cluster.propose(Operation.create({ update: StoreObject.create({ service: back.service }) }));
    }
    case "act": {
      const request = ControlRolloutRequest.create({ service: "web", action: step.action });
      try {
        await controlRollout(cluster.env, request, call());
      } catch (error) {
        // Some actions are impossible in some phases.
        if (!(error instanceof RpcError)) throw error;
      }
      return;
    }
    case "leader":
      return cluster.changeLeader();
    case "wait":
      return;
  }
}

test("any rollout keeps its order and its parallelism and ends, and a rollback restores the previous spec", async (t) => {
  t.timeout(120_000);
  const { ROLLBACK_COMPLETED, ROLLBACK_STARTED } = UpdateStatus_UpdateState;
  await fc.assert(
    fc.asyncProperty(scenarios, async ({ order, replicas, rollback, steps: taken, update }) => {
      const cluster = await testCluster(["n1", "n2"]);
      const bad = new Set<number>();
      cluster.outcome = (task) => (bad.has(task.spec?.forceUpdate ?? 0) ? TaskState.FAILED : undefined);
      const checks = new RolloutChecks();
      const wrong: string[] = [];
      let wanted: ServiceSpec | null = null;
      cluster.store.watch((commit) => {
        const claim = checks.check(commit, cluster.store);
        if (claim !== null) wrong.push(claim);
        if (order === Order.STOP_FIRST && doubled(cluster).length > 0)
          wrong.push(`two tasks of slots ${doubled(cluster).join()} run`);
        for (const change of commit.changes) {
          if (change.table !== "service" || change.action !== "update") continue;
          const [before, now] = [change.old?.updateStatus?.state, change.object.updateStatus?.state];
          // A rollback may be rolled back too.
          const isBegun = now === ROLLBACK_STARTED && !isSameMessage(change.object.spec, change.old?.spec ?? null);
          if (isBegun) wanted = change.old?.previousSpec ?? null;
          if (now === ROLLBACK_COMPLETED && before !== now && !isSameMessage(change.object.spec, wanted))
            wrong.push("a rollback did not end at the previous spec");
        }
      });
      const restart = RestartPolicy.create({
        condition: RestartPolicy_RestartCondition.ANY,
        delay: Duration.create({ seconds: 1 }),
        maxAttempts: 3,
      });
      await cluster.addService("web", replicas, { restart }, { update, rollback });
      await cluster.run(1_000);
      for (const [step, ms] of taken) {
        await take(cluster, bad, step);
        await cluster.run(ms);
      }
      const isMoving = (): string | null => findMovingRollout(cluster.store, cluster.clock.now());
      for (let minute = 0; minute < 30 && isMoving() !== null; minute += 1) await cluster.run(60_000);
      cluster.orchestration.stop();
      const claim = wrong[0] ?? isMoving();
      if (claim !== null) throw new Error(claim);
    }),
    { numRuns: 60 },
  );
  t.pass();
});
