// Rollouts with manual intervention: pause, resume, step, abort and rollback, other updates, scaling and removal.
import test from "ava";
import { controlRollout } from "../../actors/orchestration/rollout-control.ts";
import {
  ControlRolloutRequest,
  Duration,
  ReplicatedService,
  ServiceSpec,
  TaskState,
} from "../../proto/gen/messages.ts";
import { call, refusalOf } from "../support/manager.ts";
import {
  PAUSE,
  RESUME,
  STEP,
  ABORT,
  LOOK,
  ROLLBACK,
  started,
  forced,
  status,
  versions,
  wanted,
  act,
  fail,
  rollBackByHand,
} from "../support/rollout-cluster.ts";

test("pause lets tasks in progress finish, and resume continues", async (t) => {
  const cluster = await started({ update: { parallelism: 1, delay: Duration.create({ seconds: 10 }) } });
  await cluster.updateService("web", forced(1));
  await act(cluster, PAUSE);
  t.is(status(cluster), "PAUSED: update paused by an operator");
  await cluster.run(60_000);
  t.is(versions(cluster), "1 0 0 0");
  cluster.changeLeader();
  await cluster.run(60_000);
  t.is(versions(cluster), "1 0 0 0");
  t.is((await act(cluster, PAUSE)).phase, "paused", "a second time changes nothing");
  await act(cluster, RESUME);
  t.is(status(cluster), "UPDATING: update in progress");
  await cluster.run(60_000);
  t.is(versions(cluster), "1 1 1 1");
  t.is(status(cluster), "COMPLETED: update completed");
});

test("a step allows exactly one more batch, under any leader", async (t) => {
  const cluster = await started({ replicas: 7, update: { parallelism: 2, delay: Duration.create({ seconds: 30 }) } });
  await cluster.updateService("web", forced(1));
  await act(cluster, PAUSE);
  t.is(versions(cluster), "1 1 0 0 0 0 0");
  cluster.stops = () => false;
  await act(cluster, STEP);
  t.is(status(cluster), "UPDATING: update in progress (one step)");
  t.is((await act(cluster, LOOK)).phase, "stepping");
  cluster.changeLeader();
  cluster.stops = () => true;
  for (const task of cluster.tasks()) {
    if (task.desiredState === TaskState.SHUTDOWN && task.status?.state === TaskState.RUNNING)
      await cluster.report(task, TaskState.SHUTDOWN);
  }
  await cluster.run(6_000);
  t.is(status(cluster), "PAUSED: update paused after one step");
  t.is(versions(cluster), "1 1 1 1 0 0 0");
  await cluster.run(100_000);
  t.is(versions(cluster), "1 1 1 1 0 0 0");
  await act(cluster, STEP);
  await cluster.run(6_000);
  await act(cluster, STEP);
  await cluster.run(10_000);
  t.is(versions(cluster), "1 1 1 1 1 1 1");
  t.is(status(cluster), "COMPLETED: update completed", "nothing was left to pause before");
});

test("a step during an update pauses after one more batch", async (t) => {
  const cluster = await started({ replicas: 5, update: { parallelism: 1, delay: Duration.create({ seconds: 10 }) } });
  await cluster.updateService("web", forced(1));
  t.is(versions(cluster), "1 0 0 0 0");
  await act(cluster, STEP);
  await cluster.run(60_000);
  t.is(versions(cluster), "1 1 0 0 0");
  t.is(status(cluster), "PAUSED: update paused after one step");
});

test("abort rolls back an updating or paused rollout, and stops a rollback where it is", async (t) => {
  const delay = Duration.create({ seconds: 10 });
  const cluster = await started({ update: { parallelism: 1, delay }, rollback: { parallelism: 1, delay } });
  await cluster.updateService("web", forced(1));
  await cluster.run(11_000);
  t.is(versions(cluster), "1 1 0 0");
  await act(cluster, ABORT);
  t.is(status(cluster), "ROLLBACK_STARTED: update rolled back: an operator aborted it");
  t.is(versions(cluster), "0 1 0 0");
  await act(cluster, ABORT);
  t.is(status(cluster), "ROLLBACK_PAUSED: rollback paused by an operator, who aborted it");
  await cluster.run(60_000);
  t.is(versions(cluster), "0 1 0 0");
  t.is((await act(cluster, ABORT)).phase, "rollback paused");
  await act(cluster, STEP);
  await cluster.run(20_000);
  t.is(versions(cluster), "0 0 0 0");
  t.is(status(cluster), "ROLLBACK_COMPLETED: rollback completed");
});

test("abort rolls back a paused update", async (t) => {
  const cluster = await started();
  cluster.bad.add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  t.regex(status(cluster), /^PAUSED/);
  await act(cluster, ABORT);
  await cluster.run(10_000);
  t.is(versions(cluster), "0 0 0 0");
  t.is(status(cluster), "ROLLBACK_COMPLETED: rollback completed; update rolled back: an operator aborted it");
});

test("a rollback can be paused and resumed", async (t) => {
  const delay = Duration.create({ seconds: 10 });
  const cluster = await started({ update: { parallelism: 0 }, rollback: { parallelism: 1, delay } });
  await cluster.updateService("web", forced(1));
  await cluster.run(6_000);
  await rollBackByHand(cluster);
  t.is(status(cluster), "ROLLBACK_STARTED: manually requested rollback");
  await act(cluster, PAUSE);
  await cluster.run(30_000);
  t.is(versions(cluster), "0 1 1 1");
  t.is(status(cluster), "ROLLBACK_PAUSED: rollback paused by an operator");
  await act(cluster, RESUME);
  await cluster.run(60_000);
  t.is(versions(cluster), "0 0 0 0");
});

test("a manual rollback done twice leads back to the newer spec", async (t) => {
  const cluster = await started();
  await cluster.updateService("web", forced(1));
  await cluster.run(6_000);
  await rollBackByHand(cluster);
  await cluster.run(10_000);
  t.is(versions(cluster), "0 0 0 0");
  t.is(status(cluster), "ROLLBACK_COMPLETED: rollback completed");
  await rollBackByHand(cluster);
  await cluster.run(10_000);
  t.is(versions(cluster), "1 1 1 1");
});

test("requests for a missing rollout are rejected", async (t) => {
  const cluster = await started();
  for (const action of [PAUSE, RESUME, STEP, ABORT]) {
    t.like(await refusalOf(() => act(cluster, action)), {
      code: 9,
      message: "service web has no update or rollback in progress",
    });
  }
  t.is((await act(cluster, LOOK)).phase, "none");
  const nobody = ControlRolloutRequest.create({ service: "nobody" });
  t.like(await refusalOf(() => controlRollout(cluster.env, nobody, call())), {
    code: 5,
    message: "service nobody not found",
  });
});

test("another update during one takes over, with a budget of its own", async (t) => {
  const cluster = await started({ update: { parallelism: 1 } });
  cluster.bad.add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  t.regex(status(cluster), /^PAUSED/);
  await cluster.updateService("web", forced(2));
  await cluster.run(10_000);
  t.is(versions(cluster), "2 2 2 2");
  t.is(status(cluster), "COMPLETED: update completed");
});

test("an update that also scales updates only the remaining slots, and added ones do not count", async (t) => {
  const cluster = await started({ replicas: 4, update: { parallelism: 1 } });
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(forced(1)(spec), { replicated: ReplicatedService.create({ replicas: 2 }) }),
  );
  await cluster.run(10_000);
  t.is(versions(cluster), "1 1");
  t.is(status(cluster), "COMPLETED: update completed");
  cluster.outcome = (task) => (task.slot > 2 ? TaskState.FAILED : undefined);
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(forced(2)(spec), { replicated: ReplicatedService.create({ replicas: 3 }) }),
  );
  await cluster.run(10_000);
  t.is(status(cluster), "COMPLETED: update completed");
});

test("removing a service removes the record of its rollout", async (t) => {
  const cluster = await started();
  await cluster.updateService("web", forced(1));
  t.is(cluster.store.count("rollout"), 1);
  await cluster.removeService("web");
  await cluster.run(1_000);
  t.is(cluster.store.count("rollout"), 0);
});

test("scaling while an update is paused resumes it, and a rollback restores the previous spec with the new scale", async (t) => {
  const cluster = await started({ update: { parallelism: 1 }, rollback: { parallelism: 0 } });
  cluster.bad.add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  t.regex(status(cluster), /^PAUSED/);
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 3 }) }),
  );
  await cluster.run(10_000);
  t.regex(status(cluster), /^PAUSED/);
  await act(cluster, ABORT);
  await cluster.run(20_000);
  t.is(status(cluster), "ROLLBACK_COMPLETED: rollback completed; update rolled back: an operator aborted it");
  t.is(cluster.store.get("service", "web")?.spec?.task?.forceUpdate, 0);
  t.is(versions(cluster), "0 0 0");
});

test("an automatic rollback keeps a scale that was set during the update", async (t) => {
  const delay = Duration.create({ seconds: 20 });
  const cluster = await started({ update: { parallelism: 1, failureAction: ROLLBACK, delay } });
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 && task.slot === 4 ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 6 }) }),
  );
  await cluster.run(200_000);
  t.regex(status(cluster), /^ROLLBACK_COMPLETED/);
  t.is(versions(cluster), "0 0 0 0 0 0");
});

test("a step monitors its batch: a task that ends early fails it as it would fail the update", async (t) => {
  const monitor = Duration.create({ seconds: 20 });
  const update = { parallelism: 1, monitor, delay: Duration.create({ seconds: 60 }), failureAction: ROLLBACK };
  const cluster = await started({ update });
  await cluster.updateService("web", forced(1));
  await act(cluster, PAUSE);
  await act(cluster, STEP);
  await cluster.run(1_000);
  t.is(versions(cluster), "1 1 0 0");
  t.is(status(cluster), "UPDATING: update in progress (one step)", "it is being monitored");
  const canary = wanted(cluster).find(({ slot }) => slot === 2)!;
  await fail(cluster, canary, "no such table");
  t.regex(status(cluster), /^ROLLBACK_STARTED: update rolled back due to .* of task T: no such table$/);
  await cluster.run(60_000);
  t.is(versions(cluster), "0 0 0 0");
});
