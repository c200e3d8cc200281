// Output of `muster service rollout`, and its changes.
import test from "ava";
import {
  Rollout,
  Service,
  Task,
  TaskState,
  TaskStatus,
  Timestamp,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
} from "../../proto/gen/messages.ts";
import { served } from "../support/served.ts";

test("service rollout shows a rollout with the task that delays it, and accepts an operator's commands", async (t) => {
  const { muster, manager } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "--replicas", "2", "bb:1");
  const [service] = [...manager.store.all("service")] as [Service];
  t.deepEqual((await muster("service", "rollout", "status", "web")).lines, ["web: no rollout"]);
  t.deepEqual(await muster("service", "rollout", "pause", "web").then(({ remarks, status }) => ({ remarks, status })), {
    remarks: ["muster: service web has no update or rollback in progress"],
    status: 1,
  });
  const startedAt = Timestamp.create({ seconds: Math.floor(manager.clock.now() / 1_000) });
  const old = Version.create({ index: 999 });
  const task = (slot: number, state: TaskState, fields: Partial<Task>) =>
    Task.create({
      id: `t${slot}${fields.specVersion === old ? "old" : ""}`,
      serviceId: service.id,
      slot,
      spec: service.spec?.task ?? null,
      desiredState: TaskState.RUNNING,
      specVersion: service.specVersion,
      status: TaskStatus.create({ state, err: state === TaskState.PENDING ? "no suitable node" : "" }),
      ...fields,
    });
  manager.seed(
    "service",
    Service.patch(service, {
      previousSpec: service.spec,
      updateStatus: UpdateStatus.create({
        state: UpdateStatus_UpdateState.UPDATING,
        startedAt,
        message: "in progress",
      }),
    }),
  );
  manager.seed(
    "rollout",
    Rollout.create({ id: service.id, target: service.specVersion, startedAt, total: 2, deadline: startedAt }),
  );
  manager.seed(
    "task",
    task(1, TaskState.SHUTDOWN, { specVersion: old, spec: null, desiredState: TaskState.SHUTDOWN }),
    task(1, TaskState.PENDING, {}),
    task(2, TaskState.RUNNING, { specVersion: old, spec: null }),
  );
  const { lines } = await muster("service", "rollout", "status", "web");
  t.is(lines[0], "web: updating (in progress)");
  t.true(lines.includes("  slots:    0 done, 1 changing, 1 waiting, 0 failed"), lines.join("\n"));
  t.regex(lines.at(-1) ?? "", /waiting for task t1 \(slot 1\), PENDING: no suitable node/);
  t.is((await muster("service", "rollout", "pause", "web")).lines[0], "web: paused (update paused by an operator)");
  t.is(manager.store.get("service", service.id)?.updateStatus?.state, UpdateStatus_UpdateState.PAUSED);
  const json = (await muster("service", "rollout", "step", "web", "--format", "json")).lines[0] ?? "";
  t.like(JSON.parse(json) as object, { phase: "stepping" });
  t.is((await muster("service", "rollout", "abort", "web")).status, 0);
  const after = manager.store.get("service", service.id);
  t.is(after?.updateStatus?.state, UpdateStatus_UpdateState.ROLLBACK_STARTED);
  t.is(after?.previousSpec, null);
  t.is((await muster("service", "rollout", "dance", "web")).status, 125);
  t.deepEqual((await muster("service", "rollout", "status", "nobody")).remarks, ["muster: service nobody not found"]);
});

test("a deadline label that is not a duration is rejected", async (t) => {
  const { muster } = await served(t);
  const label = "muster.rollout.deadline=soon";
  const { remarks, status } = await muster("service", "create", "-d", "--name", "web", "--label", label, "bb:1");
  t.is(status, 1);
  t.deepEqual(remarks, [
    "muster: invalid value 'soon' for label muster.rollout.deadline: expected a positive duration such as 90s or 1h30m",
  ]);
});
