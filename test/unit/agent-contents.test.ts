// Which secrets and configs a task's driver gets, and when.
import test from "ava";
import type { DriverTask } from "../../actors/agent/ports.ts";
import {
  Any,
  Assignment,
  AssignmentChange,
  AssignmentChange_AssignmentAction as Action,
  AssignmentsMessage_Type as Kind,
  Config,
  ConfigSpec,
  Driver,
  GenericRuntimeSpec,
  ResourceReference,
  ResourceType,
  Secret,
  SecretSpec,
  TaskSpec,
  TaskState,
  type Task,
} from "../../proto/gen/messages.ts";
import { change, task, World } from "./agent-world.ts";

/** A world that records the preparations requested from drivers. */
function noting(): { readonly world: World; readonly prepared: DriverTask[] } {
  const world = new World();
  const prepared: DriverTask[] = [];
  const make = world.machine.driver.bind(world.machine);
  world.machine.driver = (kind, clock) => {
    const driver = make(kind, clock);
    const prepare = driver.prepare.bind(driver);
    driver.prepare = (of) => {
      prepared.push(of);
      return prepare(of);
    };
    return driver;
  };
  return { world, prepared };
}

const update = (assignment: Partial<Assignment>): AssignmentChange =>
  AssignmentChange.create({ action: Action.UPDATE, assignment: Assignment.create(assignment) });
const secret = (id: string, text: string): AssignmentChange =>
  update({ secret: Secret.create({ id, spec: SecretSpec.create({ data: Buffer.from(text) }) }) });

function needing(secretIds: readonly string[], fields: Partial<Task> = {}): Task {
  const reference = (resourceType: ResourceType) => (resourceId: string) =>
    ResourceReference.create({ resourceId, resourceType });
  return task("t1", {
    spec: TaskSpec.create({
      generic: GenericRuntimeSpec.create({ kind: "exec", payload: Any.create({ type_url: "muster.v1.ExecSpec" }) }),
      resourceReferences: [...secretIds.map(reference(ResourceType.SECRET)), reference(ResourceType.CONFIG)("c1")],
    }),
    ...fields,
  });
}

const texts = (contents: DriverTask["secrets"] | undefined): Readonly<Record<string, string>> =>
  Object.fromEntries([...(contents ?? [])].map(([id, { data }]) => [id, Buffer.from(data).toString()]));

test("a task gets only what it references, its own secret before the common one", async (t) => {
  const { prepared, world } = noting();
  await world.serving();
  const config = Config.create({
    id: "c1",
    spec: ConfigSpec.create({ data: Buffer.from("{{.Task.ID}}"), templating: Driver.create({ name: "golang" }) }),
  });
  const changes = [
    change(needing(["s1", "s2", "missing"])),
    secret("s1", "one"),
    secret("s2", "common"),
    secret("s2.t1", "own"),
    secret("s3", "not referenced"),
    update({ config }),
  ];
  world.assign({ type: Kind.COMPLETE, resultsIn: "1", changes });
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  t.deepEqual(texts(prepared[0]?.secrets), { s1: "one", s2: "own" });
  t.deepEqual(texts(prepared[0]?.configs), { c1: "{{.Task.ID}}" });
  t.deepEqual([...(prepared[0]?.secrets.values() ?? [])][0]?.template, null);
  t.deepEqual([...(prepared[0]?.configs.values() ?? [])][0]?.template, "golang");
});

test("L3: after a kill -9, a task that had not started waits for its secrets and is prepared with them", async (t) => {
  const { prepared, world } = noting();
  await world.serving();
  const ready = needing(["s1"], { desiredState: TaskState.READY });
  world.assign({ type: Kind.COMPLETE, resultsIn: "1", changes: [change(ready), secret("s1", "one")] });
  await world.until(() => world.statesOf("t1").includes(TaskState.READY));
  await world.pass(1_000);
  world.node.crash({ losePower: false });
  prepared.length = 0;
  world.node.start();
  await world.until(() => world.streams.length === 2);
  await world.pass(2_000);
  t.deepEqual(prepared, [], "no manager has sent the assignments yet");
  t.deepEqual(world.agent.tasks(), [{ id: "t1", state: TaskState.READY }]);
  world.assign({ type: Kind.COMPLETE, resultsIn: "1", changes: [change(needing(["s1"])), secret("s1", "one")] });
  await world.until(() => world.machine.running().length === 1);
  t.deepEqual(
    prepared.map(({ secrets }) => texts(secrets)),
    [{ s1: "one" }],
  );
});

test("L3: a task that is no longer assigned after a kill -9 is forgotten without being prepared", async (t) => {
  const { prepared, world } = noting();
  await world.serving();
  const ready = needing(["s1"], { desiredState: TaskState.READY });
  world.assign({ type: Kind.COMPLETE, resultsIn: "1", changes: [change(ready), secret("s1", "one")] });
  await world.until(() => world.statesOf("t1").includes(TaskState.READY));
  await world.pass(1_000);
  world.node.crash({ losePower: false });
  world.node.start();
  await world.until(() => world.streams.length === 2);
  prepared.length = 0;
  world.assign({ type: Kind.COMPLETE, resultsIn: "1", changes: [] });
  await world.until(() => world.agent.tasks().length === 0);
  t.deepEqual(prepared, []);
});
