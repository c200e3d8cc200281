/** The whole trees of spans of changes to services: what a command causes, in which process, and what is linked to what. */
import test from "ava";
import { ReplicatedJob, RestartPolicy, RestartPolicy_RestartCondition } from "../../proto/gen/messages.ts";
import { jobPayload } from "../../simulation/nodes/machine.ts";
import { scaledTo, simService, simTask } from "../../simulation/workloads/services.ts";
import { steadyTasks } from "./scripted.ts";
import { tracedCluster, varying } from "./traced.ts";

test("a created service is one trace, from the command over the leader's decisions to its tasks on their nodes", async (t) => {
  const { world, create } = await tracedCluster();
  const traceId = await create(simService({ name: "web", replicas: 2 }));
  await world.pass(5_000);
  world.assertTrace(
    t,
    traceId,
    `
      service create [person]
        service create [m3] service.id=web
          ledger commit [m3] manager=m3
            log append [m3] changes=1 proposals=1
          tasks create [m3] service.id=web tasks=2
            ledger commit [m3] manager=m3
              log append [m3] changes=2 proposals=1
            tasks assign [m3] service.id=web tasks=2
              ledger commit [m3] manager=m3
                log append [m3] changes=2 proposals=1
            assignments send [m1] changes=1 node.id=a1
            assignments send [m1] changes=1 node.id=a2
            task start [a1] node.id=a1 service.id=web task.id=web.1
              task report [m1] task.id=web.1 task.state=RUNNING
            task start [a2] node.id=a2 service.id=web task.id=web.2
              task report [m1] task.id=web.2 task.state=RUNNING
    `,
  );
});

test("scaling a service traces the tasks that are added", async (t) => {
  const { world, create, update } = await tracedCluster();
  await create(simService({ name: "web", replicas: 1 }));
  await world.pass(5_000);
  const traceId = await update((spec) => scaledTo(spec, 2));
  await world.pass(5_000);
  world.assertTrace(
    t,
    traceId,
    `
      service update [person]
        service update [m3] service.id=web
          ledger commit [m3]
            log append [m3]
          tasks create [m3] service.id=web tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=web tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a2
            task start [a2] node.id=a2 service.id=web task.id=web.2
              task report [m1] task.id=web.2 task.state=RUNNING
    `,
    varying,
  );
});

test("a job's trace has each of its runs, up to their end", async (t) => {
  const { world, create } = await tracedCluster({ tasks: { ...steadyTasks, lifeMsMax: 2_000 } });
  const replicatedJob = ReplicatedJob.create({ totalCompletions: 2, maxConcurrent: 1 });
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  const traceId = await create(
    simService({ name: "job", task: { generic: simTask(jobPayload), restart }, replicatedJob }),
  );
  await world.pass(30_000);
  world.assertTrace(
    t,
    traceId,
    `
      service create [person]
        service create [m3] service.id=job
          ledger commit [m3]
            log append [m3]
          tasks create [m3] service.id=job tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=job tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            task start [a1] node.id=a1 service.id=job task.id=job.0
              task report [m1] task.id=job.0 task.state=RUNNING
              task report [m1] task.id=job.0 task.state=COMPLETE
          tasks create [m3] service.id=job tasks=1
            ledger commit [m3]
              log append [m3]
            tasks assign [m3] service.id=job tasks=1
              ledger commit [m3]
                log append [m3]
            assignments send [m1] node.id=a1
            task start [a1] node.id=a1 service.id=job task.id=job.1
              task report [m1] task.id=job.1 task.state=RUNNING
              task report [m1] task.id=job.1 task.state=COMPLETE
    `,
    varying,
  );
});

test("commands at the same time share a record of the log, whose span has links to the others", async (t) => {
  const { world, create } = await tracedCluster();
  const specs = ["one", "two", "three"].map((name) => simService({ name, replicas: 0 }));
  const [one = "", two = ""] = await Promise.all(specs.map(create));
  world.assertTrace(
    t,
    one,
    `
      service create [person]
        service create [m3] service.id=one
          ledger commit [m3] manager=m3
    `,
  );
  world.assertTrace(
    t,
    two,
    `
      service create [person]
        service create [m3] service.id=two
          ledger commit [m3] manager=m3
            log append [m3] changes=2 proposals=2 -> ledger commit of service create [m3] service.id=one
    `,
  );
});
