/** The whole trees of spans when something fails: a node, an update, a leader, a driver plugin. */
import test from "ava";
import {
  Any,
  DriverSpec,
  Duration,
  GenericRuntimeSpec,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
} from "../../proto/gen/messages.ts";
import { driverKind, type DriverFaults } from "../../simulation/nodes/drivers.ts";
import { refusedPayload } from "../../simulation/workloads/rollout.ts";
import { simService, simTask, updatedAgain } from "../../simulation/workloads/services.ts";
import { tracedCluster, varying } from "./traced.ts";

const faultless: DriverFaults = {
  dieAtLaunch: 0,
  dieBeforeStart: 0,
  dieAfterStart: 0,
  endsByItself: 0,
  refuses: 0,
  unwell: 0,
  pluginCrashMs: 0,
  networkFailure: 0,
  makesNetworks: false,
  pluginHang: 0,
  forgets: 0,
  takenAway: 0,
};

test("tasks that replace those of a lost node belong to the trace of their service", async (t) => {
  const { world, create } = await tracedCluster();
  const traceId = await create(simService({ name: "web", replicas: 2 }));
  await world.pass(5_000);
  world.agents[1]?.discard();
  await world.pass(60_000);
  world.assertTrace(
    t,
    traceId,
    `
      service create [person]
        service create [m3] service.id=web
          ledger commit [m3]
            log append [m3]
          tasks create [m3] service.id=web tasks=2
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=web tasks=2
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            assignments send [m1] node.id=a2
            task start [a1] node.id=a1 service.id=web task.id=web.1
              task report [m1] task.id=web.1 task.state=RUNNING
            task start [a2] node.id=a2 service.id=web task.id=web.2
              task report [m1] task.id=web.2 task.state=RUNNING
          tasks create [m3] service.id=web tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=web tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            task start [a1] node.id=a1 service.id=web task.id=web.2#2
              task report [m1] task.id=web.2#2 task.state=RUNNING
    `,
    varying,
  );
});

test("an update that is rolled back is one trace, with the failed task and both decisions", async (t) => {
  const { world, create, update } = await tracedCluster();
  const monitor = Duration.create({ seconds: 5 });
  const failing = UpdateConfig.create({ parallelism: 1, failureAction: UpdateConfig_FailureAction.ROLLBACK, monitor });
  const rollback = UpdateConfig.create({ parallelism: 0 });
  await create(simService({ name: "web", replicas: 2, update: failing, rollback }));
  await world.pass(5_000);
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  const traceId = await update((spec) => {
    const task = TaskSpec.patch(spec.task ?? TaskSpec.create(), { generic: simTask(refusedPayload), restart });
    return ServiceSpec.patch(spec, { task });
  });
  await world.pass(60_000);
  world.assertTrace(
    t,
    traceId,
    `
      service update [person]
        service update [m3] service.id=web
          ledger commit [m3]
            log append [m3]
          rollout decide [m3] service.id=web update.state=UPDATING
            ledger commit [m3]
              log append [m3]
          tasks create [m3] service.id=web tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=web tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            task start [a1] node.id=a1 service.id=web task.id=web.1#2 FAILED: the kind is refused
              task report [m1] task.id=web.1#2 task.state=FAILED
          rollout decide [m3] service.id=web update.state=ROLLBACK_STARTED
            ledger commit [m3]
              log append [m3]
          tasks create [m3] service.id=web tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=web tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            task start [a1] node.id=a1 service.id=web task.id=web.1#3
              task report [m1] task.id=web.1#3 task.state=RUNNING
          rollout decide [m3] service.id=web update.state=ROLLBACK_COMPLETED
            ledger commit [m3]
              log append [m3]
    `,
    varying,
  );
});

test("the next leader continues the trace of an update", async (t) => {
  const { world, create, update } = await tracedCluster();
  const slow = UpdateConfig.create({ parallelism: 1, delay: Duration.create({ seconds: 10 }) });
  await create(simService({ name: "web", replicas: 2, update: slow }));
  await world.pass(5_000);
  const traceId = await update(updatedAgain);
  await world.pass(3_000);
  world.leader?.process.crash();
  await world.pass(60_000);
  world.assertTrace(
    t,
    traceId,
    `
      service update [person]
        service update [m3] service.id=web
          ledger commit [m3]
            log append [m3]
          rollout decide [m3] service.id=web update.state=UPDATING
            ledger commit [m3]
              log append [m3]
          tasks create [m3] service.id=web tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=web tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            task start [a1] node.id=a1 service.id=web task.id=web.1#2
              task report [m1] task.id=web.1#2 task.state=RUNNING
          tasks create [m1] service.id=web tasks=1
            ledger commit [m1]
              log append [m1]
            tasks assign [m1] service.id=web tasks=1
              ledger commit [m1]
                log append [m1]
            assignments send [m1] node.id=a2
            task start [a2] node.id=a2 service.id=web task.id=web.2#2
              task report [m1] task.id=web.2#2 task.state=RUNNING
          rollout decide [m1] service.id=web update.state=COMPLETED
            ledger commit [m1]
              log append [m1]
    `,
    varying,
  );
});

test("tasks that outlive their driver's plugin are found again in the trace of their start", async (t) => {
  const { world, create } = await tracedCluster({ agents: 1, drivers: faultless });
  const value = DriverSpec.encode(DriverSpec.create({ config: "{}" }));
  const payload = Any.create({ type_url: "sim/muster.v1.DriverSpec", value });
  const generic = GenericRuntimeSpec.create({ kind: driverKind, payload });
  const traceId = await create(simService({ name: "driven", replicas: 1, task: { generic } }));
  await world.pass(10_000);
  world.drivers[0]?.machine.killPlugins();
  await world.pass(20_000);
  world.assertTrace(
    t,
    traceId,
    `
      service create [person]
        service create [m3] service.id=driven
          ledger commit [m3]
            log append [m3]
          tasks create [m3] service.id=driven tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=driven tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            task start [a1] node.id=a1 service.id=driven task.id=driven.1
              task report [m1] task.id=driven.1 task.state=RUNNING
              task recover [a1] task.id=driven.1
    `,
    varying,
  );
});
