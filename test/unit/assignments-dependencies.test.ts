// A node holds exactly the secrets and configs that its tasks need, through any history of tasks, secrets and configs.
import fc from "fast-check";
import test from "ava";
import { AssignmentSet, concernsNode, type AssignmentSource } from "../../machines/dispatcher/assignment-diff.ts";
import {
  Annotations,
  AssignmentChange_AssignmentAction as Action,
  Config,
  ConfigReference,
  ConfigSpec,
  ContainerSpec,
  ResourceReference,
  ResourceType,
  Secret,
  SecretReference,
  SecretSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Volume,
  VolumePublishStatus,
  VolumePublishStatus_State as PublishState,
  VolumeSecret,
  VolumeSpec,
  Driver,
  type AssignmentChange,
} from "../../proto/gen/messages.ts";

const node = "n1";
const [taskIds, secretIds, configIds, volumeIds] = [
  ["t1", "t2", "t3", "t4", "t5", "t6"],
  ["s1", "s2", "s3"],
  ["c1", "c2"],
  ["v1"],
] as const;
const states = [
  TaskState.PENDING,
  TaskState.ASSIGNED,
  TaskState.PREPARING,
  TaskState.RUNNING,
  TaskState.COMPLETE,
  TaskState.FAILED,
  TaskState.SHUTDOWN,
] as const;

interface References {
  readonly secrets: readonly string[];
  readonly configs: readonly string[];
  readonly references: readonly string[];
}

type Step =
  | ({ readonly kind: "task made"; readonly id: string; readonly nodeId: string } & References)
  | { readonly kind: "task moved on"; readonly id: string; readonly by: number }
  | { readonly kind: "task removed"; readonly id: string }
  | { readonly kind: "volume"; readonly id: string; readonly state: PublishState; readonly secret: string }
  | { readonly kind: "volume removed"; readonly id: string }
  /** Sends the recorded changes to the node. */
  | { readonly kind: "flush" }
  /** A fresh stream: the node forgets its state. */
  | { readonly kind: "reopened" };

const some = (ids: readonly string[]) => fc.subarray([...ids]);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("task made" as const),
      id: fc.constantFrom(...taskIds),
      nodeId: fc.constantFrom(node, node, node, "n2"),
      // One of them does not exist.
      secrets: some([...secretIds, "missing"]),
      configs: some(configIds),
      references: some(["s1", "c1", "s3"]),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("task moved on" as const),
      id: fc.constantFrom(...taskIds),
      by: fc.integer({ min: 1, max: 3 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("task removed" as const), id: fc.constantFrom(...taskIds) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("volume" as const),
      id: fc.constantFrom(...volumeIds),
      state: fc.constantFrom(
        PublishState.PENDING_PUBLISH,
        PublishState.PUBLISHED,
        PublishState.PENDING_NODE_UNPUBLISH,
        PublishState.PENDING_UNPUBLISH,
      ),
      secret: fc.constantFrom(...secretIds),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("volume removed" as const), id: fc.constantFrom(...volumeIds) }),
  },
  { weight: 5, arbitrary: fc.constant({ kind: "flush" as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: "reopened" as const }) },
);

function makeTask({ configs, id, nodeId, references, secrets }: Extract<Step, { kind: "task made" }>): Task {
  return Task.create({
    id,
    nodeId,
    serviceAnnotations: Annotations.create({ name: "web" }),
    spec: TaskSpec.create({
      container: ContainerSpec.create({
        image: "bb:1",
        secrets: secrets.map((secretId) => SecretReference.create({ secretId })),
        configs: configs.map((configId) => ConfigReference.create({ configId })),
      }),
      resourceReferences: references.map((resourceId) =>
        ResourceReference.create({
          resourceId,
          resourceType: resourceId.startsWith("s") ? ResourceType.SECRET : ResourceType.CONFIG,
        }),
      ),
    }),
    status: TaskStatus.create({ state: TaskState.PENDING }),
    desiredState: TaskState.RUNNING,
  });
}

/** The store, one stream of a node and the node itself, which applies the changes one after the other. */
class World {
  readonly tasks = new Map<string, Task>();
  readonly volumes = new Map<string, Volume>();
  readonly secrets = new Map(
    secretIds.map((id) => [id as string, Secret.create({ id, spec: SecretSpec.create({ data: bytes(id) }) })]),
  );
  readonly configs = new Map(
    configIds.map((id) => [id as string, Config.create({ id, spec: ConfigSpec.create({ data: bytes(id) }) })]),
  );
  readonly #made = new Set<string>();
  readonly #source: AssignmentSource = {
    task: (id) => this.tasks.get(id),
    secret: (id) => this.secrets.get(id),
    config: (id) => this.configs.get(id),
    volume: (id) => this.volumes.get(id),
    tasksOf: (nodeId) => [...this.tasks.values()].filter((task) => task.nodeId === nodeId),
    volumes: () => this.volumes.values(),
  };
  #set = new AssignmentSet(node, this.#source, () => {});
  #notedTasks = new Set<string>();
  #notedVolumes = new Set<string>();
  /** Volumes for which the node was sent secrets. */
  readonly #mounted = new Map<string, string>();
  /** `secret/s1`, as the node has them. */
  known = new Set<string>();

  constructor() {
    this.#take(this.#set.complete());
  }

  #take(changes: readonly AssignmentChange[]): void {
    const held = new Set(this.known);
    for (const { action, assignment } of changes) {
      const name =
        assignment?.secret != null
          ? `secret/${assignment.secret.id}`
          : assignment?.config != null
            ? `config/${assignment.config.id}`
            : null;
      if (name !== null && action === Action.REMOVE) held.delete(name);
      else if (name !== null) held.add(name);
      const task = action === Action.UPDATE ? (assignment?.task ?? null) : null;
      // However a message is split, a task arrives after its dependencies.
      if (task !== null && (task.status?.state ?? 0) <= TaskState.RUNNING)
        for (const needed of this.needsOf(task)) if (!held.has(needed)) throw new Error(`${task.id} without ${needed}`);
    }
    this.known = held;
  }

  needsOf({ spec }: Task): readonly string[] {
    const all = [
      ...(spec?.container?.secrets ?? []).map(({ secretId }) => `secret/${secretId}`),
      ...(spec?.container?.configs ?? []).map(({ configId }) => `config/${configId}`),
      ...(spec?.resourceReferences ?? []).map(
        ({ resourceId, resourceType }) => `${resourceType === ResourceType.SECRET ? "secret" : "config"}/${resourceId}`,
      ),
    ];
    return all.filter((name) => this.secrets.has(name.slice(7)) || this.configs.has(name.slice(7)));
  }

  /** Names that the node must have: the dependencies of its unfinished tasks, and the secrets of its volumes. */
  needed(): Set<string> {
    const names = new Set<string>();
    for (const task of this.tasks.values()) {
      const state = task.status?.state ?? 0;
      if (task.nodeId === node && state >= TaskState.ASSIGNED && state <= TaskState.RUNNING)
        for (const name of this.needsOf(task)) names.add(name);
    }
    for (const secret of this.#mounted.values()) names.add(`secret/${secret}`);
    return names;
  }

  #put(task: Task, old: Task | null): void {
    this.tasks.set(task.id, task);
    // As the router does: only relevant changes are processed.
    if (concernsNode(old, task)) this.#notedTasks.add(task.id);
  }

  do(step: Step): void {
    switch (step.kind) {
      case "task made":
        // An id is never reused for a second task.
        if (!this.#made.has(step.id)) this.#put(makeTask(step), null);
        this.#made.add(step.id);
        return;
      case "task moved on": {
        const old = this.tasks.get(step.id);
        if (old === undefined) return;
        const at = states.findIndex((state) => state === old.status?.state);
        const state = states[Math.min(at + step.by, states.length - 1)] ?? TaskState.SHUTDOWN;
        this.#put(Task.patch(old, { status: TaskStatus.create({ state }) }), old);
        return;
      }
      case "task removed":
        if (this.tasks.delete(step.id)) this.#notedTasks.add(step.id);
        return;
      case "volume":
        this.volumes.set(step.id, volumeOf(step.id, step.state, this.volumes.get(step.id), step.secret));
        this.#notedVolumes.add(step.id);
        return;
      case "volume removed":
        this.volumes.delete(step.id);
        this.#notedVolumes.add(step.id);
        return;
      case "flush":
        this.flush();
        return;
      case "reopened":
        this.#set = new AssignmentSet(node, this.#source, () => {});
        this.known = new Set();
        this.#mounted.clear();
        this.#notedTasks.clear();
        this.#notedVolumes.clear();
        for (const volume of this.volumes.values()) this.#mount(volume);
        this.#take(this.#set.complete());
    }
  }

  flush(): void {
    for (const id of this.#notedVolumes) {
      const volume = this.volumes.get(id);
      if (volume === undefined) this.#mounted.delete(id);
      else this.#mount(volume);
    }
    const changes = this.#set.changes(this.#notedTasks, this.#notedVolumes);
    this.#notedTasks = new Set();
    this.#notedVolumes = new Set();
    this.#take(changes);
  }

  /** A volume's dependencies, like a task's, are fixed when the node first gets it. */
  #mount({ id, publishStatus, spec }: Volume): void {
    const state = publishStatus[0]?.state;
    if (state === PublishState.PENDING_UNPUBLISH) this.#mounted.delete(id);
    if (state === PublishState.PUBLISHED && !this.#mounted.has(id))
      this.#mounted.set(id, spec?.secrets[0]?.secret ?? "");
  }
}

function volumeOf(id: string, state: PublishState, before: Volume | undefined, secret: string): Volume {
  const spec =
    before?.spec ??
    VolumeSpec.create({
      driver: Driver.create({ name: "csi" }),
      secrets: [VolumeSecret.create({ key: "k", secret })],
    });
  return Volume.create({ id, spec, publishStatus: [VolumePublishStatus.create({ nodeId: node, state })] });
}

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

test("a node has exactly the secrets and configs that its tasks and volumes need, each before its first user", (t) => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const world = new World();
      for (const each of steps) {
        world.do(each);
        if (each.kind === "flush" || each.kind === "reopened")
          t.deepEqual([...world.known].toSorted(), [...world.needed()].toSorted());
      }
      world.flush();
      t.deepEqual([...world.known].toSorted(), [...world.needed()].toSorted());
      // At the end, nothing is left.
      for (const id of taskIds) world.do({ kind: "task removed", id });
      for (const id of volumeIds) world.do({ kind: "volume removed", id });
      world.flush();
      t.is(world.known.size, 0);
    }),
    { numRuns: 400 },
  );
});

test("a node keeps a task's secrets while the task runs, whatever else changes meanwhile", (t) => {
  const resourceReferences = [ResourceReference.create({ resourceId: "s1", resourceType: ResourceType.SECRET })];
  const spec = TaskSpec.create({ container: ContainerSpec.create({ image: "x" }), resourceReferences });
  let task = Task.create({ id: "t1", nodeId: node, spec, serviceAnnotations: Annotations.create({ name: "web" }) });
  const become = (state: TaskState, desiredState: TaskState): void => {
    task = Task.patch(task, { status: TaskStatus.create({ state }), desiredState });
  };
  const source: AssignmentSource = {
    task: () => task,
    secret: (id) => Secret.create({ id, spec: SecretSpec.create({ data: bytes("x") }) }),
    config: () => undefined,
    volume: () => undefined,
    tasksOf: () => [task],
    volumes: () => [],
  };
  const set = new AssignmentSet(node, source, () => {});
  become(TaskState.ASSIGNED, TaskState.RUNNING);
  set.complete();
  const removed = (): readonly string[] =>
    set
      .changes(["t1"], [])
      .filter(({ action, assignment }) => action === Action.REMOVE && assignment?.secret !== null)
      .map(({ assignment }) => assignment?.secret?.id ?? "");
  become(TaskState.RUNNING, TaskState.RUNNING);
  t.deepEqual(removed(), []);
  become(TaskState.RUNNING, TaskState.SHUTDOWN);
  t.deepEqual(removed(), [], "it is still stopping");
  become(TaskState.SHUTDOWN, TaskState.SHUTDOWN);
  t.deepEqual(removed(), ["s1"]);
});
