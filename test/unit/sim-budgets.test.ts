// Budgets of a healed cluster: which waits there are, and when one has lasted too long.
import test from "ava";
import {
  Annotations,
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeDescription,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  Service,
  ServiceSpec,
  Task,
  TaskState,
  TaskStatus,
  UpdateStatus,
  UpdateStatus_UpdateState,
} from "../../proto/gen/messages.ts";
import { Budgets, budgets, type Wait } from "../../simulation/invariants/budgets.ts";
import { waitsIn } from "../../simulation/invariants/waits.ts";
import { testManager } from "../support/manager.ts";

test("L9: a wait that outlasts its kind's budget is reported, with the thing that waits", (t) => {
  const wait: Wait = { kind: "session", what: "node a1 is in state 3" };
  const looked = new Budgets();
  t.is(looked.look([wait], 1_000), null);
  t.is(looked.look([wait], 1_000 + budgets.session), null, "it may use its budget");
  t.regex(looked.look([wait], 1_500 + budgets.session) ?? "", /^L9: .*\(session\): node a1 is in state 3$/);
});

test("L9: a wait that ends, makes progress, or is excused begins anew", (t) => {
  const [before, after]: readonly Wait[] = [
    { kind: "job", what: "job j has done 1 of 3" },
    { kind: "job", what: "job j has done 2 of 3" },
  ];
  const late = budgets.job + 1;
  const ended = new Budgets();
  ended.look([before as Wait], 0);
  ended.look([], 1);
  t.is(ended.look([before as Wait], late), null);
  const moved = new Budgets();
  moved.look([before as Wait], 0);
  t.is(moved.look([after as Wait], late), null);
  const excused = new Budgets();
  excused.look([before as Wait], 0);
  excused.restart();
  t.is(excused.look([before as Wait], late), null);
});

test("each thing that waits in the store is found, and nothing else", (t) => {
  const { seed, store } = testManager();
  const kinds = (): readonly string[] => [...waitsIn(store, new Set(["a1", "a2"]))].map(({ kind }) => kind);
  const node = (id: string, state: NodeStatus_State, over: Partial<Node> = {}): Node =>
    Node.create({
      id,
      description: NodeDescription.create({ hostname: id }),
      status: NodeStatus.create({ state }),
      spec: NodeSpec.create(),
      ...over,
    });
  const { DOWN, READY } = NodeStatus_State;
  t.deepEqual(kinds(), ["session", "session"], "no agent has registered");
  seed("node", node("a1", READY), node("a2", DOWN), node("gone", DOWN));
  t.deepEqual(kinds(), ["session"], "a2 is DOWN; nobody expects the node whose agent does not run");
  const pending = IssuanceStatus.create({ state: IssuanceStatus_State.PENDING });
  seed("node", node("a2", READY, { certificate: Certificate.create({ status: pending }) }));
  t.deepEqual(kinds(), ["certificate"]);
  seed("node", node("a2", READY, { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) }));
  t.deepEqual(kinds(), []);

  const task = (nodeId: string, state: TaskState, desiredState: TaskState): Task =>
    Task.create({ id: "t", serviceId: "s", slot: 1, nodeId, desiredState, status: TaskStatus.create({ state }) });
  const { COMPLETE, NEW, PREPARING, RUNNING, SHUTDOWN } = TaskState;
  seed("task", task("", NEW, RUNNING));
  t.deepEqual(kinds(), ["placement"]);
  seed("task", task("a1", PREPARING, RUNNING));
  t.deepEqual(kinds(), ["order"]);
  seed("task", task("a1", RUNNING, RUNNING));
  t.deepEqual(kinds(), []);
  seed("task", task("a1", RUNNING, SHUTDOWN));
  t.deepEqual(kinds(), ["order"]);
  seed("task", task("gone", RUNNING, SHUTDOWN));
  t.deepEqual(kinds(), [], "its node gets no orders");
  seed("task", task("a2", RUNNING, RUNNING));
  t.deepEqual(kinds(), ["drain"]);
  seed("task", task("a2", COMPLETE, RUNNING));
  t.deepEqual(kinds(), []);

  const spec = ServiceSpec.create({ annotations: Annotations.create({ name: "s" }) });
  const updateStatus = UpdateStatus.create({ state: UpdateStatus_UpdateState.UPDATING });
  seed("service", Service.create({ id: "s", spec, updateStatus }));
  t.deepEqual(kinds(), ["rollout"]);
  seed("service", Service.create({ id: "s", spec, pendingDelete: true }));
  t.deepEqual(kinds(), ["removal"]);
});
