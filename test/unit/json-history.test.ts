// The log records each change through the JSON API with who requested it.
import test from "ava";
import { machineId } from "../../edges/juju/entities/names.ts";
import { processLabel } from "../../machines/manager/role.ts";
import {
  Annotations,
  EngineDescription,
  Manager,
  NodeDescription,
  NodeRole,
  NodeSpec,
  Service,
  Task,
  TaskState,
  TaskStatus,
  UpdateStatus,
  UpdateStatus_UpdateState,
} from "../../proto/gen/messages.ts";
import { until } from "../fixtures/until.ts";
import { createdService, spec, updateOf, workerNode } from "../support/control.ts";
import { jsonWorld } from "../support/json-world.ts";
import { call } from "../support/manager.ts";

const application = "web";
const machine = machineId("m1");

/** Requests of the Muster facade that change something or act on a task, in an order in which each can be done. */
const asked: readonly (readonly [request: string, params: object, told?: string])[] = [
  ["Demote", { machine }],
  ["Promote", { machine }],
  ["PauseRollout", { application }],
  ["StepRollout", { application }],
  ["PauseRollout", { application }],
  ["ResumeRollout", { application }],
  ["AbortRollout", { application }],
  ["Rollback", { application }],
  ["Signal", { unit: "web/0", signal: "HUP" }, "Muster.Signal SIGHUP"],
];

test("each acting request of the Muster facade is recorded under its caller's name", async (t) => {
  const { connect, control, facades, manager, store } = await jsonWorld(t);
  const engine = EngineDescription.create({ labels: { [processLabel]: "manager" } });
  const desiredRole = NodeRole.MANAGER;
  manager.seed(
    "node",
    workerNode("m1", {
      description: NodeDescription.create({ hostname: "m1", engine }),
      role: NodeRole.MANAGER,
      spec: NodeSpec.create({ desiredRole }),
    }),
  );
  for (const id of ["m1", "m2"]) manager.seed("manager", Manager.create({ id, alive: true, addr: "192.0.2.9:2377" }));
  const { id } = await createdService(control, spec("web", 1, "bb:1"));
  const service = (): Service => store.get("service", id) as Service;
  const update = (image: string) => control.UpdateService(updateOf(service(), { spec: spec("web", 1, image) }), call());
  await update("bb:2");
  const updateStatus = UpdateStatus.create({ state: UpdateStatus_UpdateState.UPDATING });
  manager.seed("service", Service.patch(service(), { updateStatus }));
  manager.seed(
    "task",
    Task.create({
      id: "t1",
      serviceId: id,
      serviceAnnotations: Annotations.create({ name: "web" }),
      slot: 1,
      nodeId: "n1",
      desiredState: TaskState.RUNNING,
      status: TaskStatus.create({ state: TaskState.RUNNING }),
    }),
  );
  const { ask } = connect("V1", { kind: "user", name: "ada", role: "admin" });

  for (const [request, params, told = `Muster.${request}`] of asked) {
    if (request === "Rollback") await update("bb:3");
    const before = manager.proposals.length;
    const answer = ask({ type: "Muster", version: 1, request, params });
    // A signal is answered by its node, and there is none here.
    if (request === "Signal") answer.catch(() => undefined);
    else await answer;
    const proposal = await until(`the record of ${request}`, () =>
      manager.proposals.slice(before).find(({ caller }) => caller !== undefined),
    );
    t.like(proposal.caller, { user: "user-ada", address: "192.0.2.9", method: told }, request);
  }

  const muster = facades.find(({ type }) => type === "Muster");
  const doing = Object.entries(muster?.methods ?? {}).filter(([, { needs }]) => needs !== "read-only");
  t.deepEqual(
    [...new Set(asked.map(([request]) => request))].toSorted(),
    doing.map(([request]) => request).toSorted(),
    "none is left out",
  );
});
