/**
 * What one Assignments stream has told its node, and what must be told next (worker protocol §4.6). Pure: it reads a
 * source and answers with changes.
 *
 * N1: a task is sent from ASSIGNED on, and REMOVE for it only when it left the store (or the node).
 * N2: changes of status and meta alone are not sent while the state is above ASSIGNED: the node reported those itself.
 * N3: a secret or config is sent before or with its first user that is not past RUNNING, and removed after its last.
 * N4: a task with a flaw that crashes engines is never sent; `refuse` hears of it.
 */
import {
  Assignment,
  AssignmentChange,
  AssignmentChange_AssignmentAction as Action,
  Config,
  ResourceType,
  Secret,
  Task,
  TaskState,
  VolumeAssignment,
  VolumePublishStatus_State as PublishState,
  type Volume,
} from "../../proto/gen/messages.ts";
import { isSameBytes } from "../same-message.ts";
import { taskFlaw } from "../orchestration/task-check.ts";

/** The tables that assignments are made from. */
export interface AssignmentSource {
  task(id: string): Task | undefined;
  secret(id: string): Secret | undefined;
  config(id: string): Config | undefined;
  volume(id: string): Volume | undefined;
  tasksOf(nodeId: string): Iterable<Task>;
  volumes(): Iterable<Volume>;
}

/** A task is known by its id, a dependency by its table and id: `secret/…`, `config/…`. */
type Dependency = `secret/${string}` | `config/${string}`;

/** A quick look that never overlooks a change that matters, for the one watcher that serves all streams: true when the
 *  streams of the task's node must look at it. */
export function concernsNode(old: Task | null, task: Task): boolean {
  const state = stateOf(task);
  if (state < TaskState.ASSIGNED) return false;
  if (old === null || stateOf(old) < TaskState.ASSIGNED || state === TaskState.ASSIGNED) return true;
  if (!sharesAllButStatus(old, task)) return true;
  // Past RUNNING it gives up its secrets and configs.
  return state > TaskState.RUNNING && stateOf(old) <= TaskState.RUNNING;
}

function sharesAllButStatus(old: Task, task: Task): boolean {
  return (
    old.desiredState === task.desiredState &&
    old.spec === task.spec &&
    old.nodeId === task.nodeId &&
    old.networks === task.networks &&
    old.endpoint === task.endpoint &&
    old.serviceAnnotations === task.serviceAnnotations &&
    old.annotations === task.annotations &&
    old.logDriver === task.logDriver &&
    old.specVersion === task.specVersion &&
    old.assignedGenericResources === task.assignedGenericResources &&
    old.volumes === task.volumes &&
    old.jobIteration === task.jobIteration &&
    old.serviceId === task.serviceId &&
    old.slot === task.slot
  );
}

/** Exactly: whether the two differ in more than status and meta. */
function differsForNode(old: Task, task: Task): boolean {
  if (sharesAllButStatus(old, task)) return false;
  return !isSameBytes(Task.encode(comparable(old)), Task.encode(comparable(task)));
}

function comparable(task: Task): Task {
  return Task.patch(task, { status: null, meta: null });
}

export class AssignmentSet {
  readonly #nodeId: string;
  readonly #source: AssignmentSource;
  readonly #refuse: (task: Task, flaw: string) => void;
  /** As last sent. */
  readonly #tasks = new Map<string, Task>();
  // The rest is null before the first, which most of thousands of nodes never have.
  /** Of tasks and volumes that hold dependencies: what each holds. */
  #held: Map<string, readonly Dependency[]> | null = null;
  #users: Map<Dependency, Set<string>> | null = null;
  /** Volumes, by what was last said of them. */
  #volumes: Map<string, { readonly volume: Volume; readonly action: Action }> | null = null;
  #refused: Set<string> | null = null;

  constructor(nodeId: string, source: AssignmentSource, refuse: (task: Task, flaw: string) => void) {
    this.#nodeId = nodeId;
    this.#source = source;
    this.#refuse = refuse;
  }

  /** Everything that the node must have, as changes of a COMPLETE message. For a fresh set only. */
  complete(): AssignmentChange[] {
    const changes = new Changes();
    for (const task of this.#source.tasksOf(this.#nodeId)) this.#lookAtTask(task.id, task, changes);
    for (const volume of this.#source.volumes()) this.#lookAtVolume(volume.id, volume, changes);
    return changes.all();
  }

  /** What changed for the node in these tasks and volumes; empty when nothing did. Dependencies come before their users,
   *  and go after them, so that the list may be cut into messages anywhere. */
  changes(taskIds: Iterable<string>, volumeIds: Iterable<string>): AssignmentChange[] {
    const changes = new Changes();
    for (const id of taskIds) this.#lookAtTask(id, this.#source.task(id), changes);
    for (const id of volumeIds) this.#lookAtVolume(id, this.#source.volume(id), changes);
    return changes.all();
  }

  #lookAtTask(id: string, task: Task | undefined, changes: Changes): void {
    const known = this.#tasks.get(id);
    if (task === undefined || task.nodeId !== this.#nodeId) {
      this.#refused?.delete(id);
      if (known === undefined) return;
      this.#tasks.delete(id);
      changes.tasks.push(change(Action.REMOVE, { task: Task.create({ id }) }));
      this.#release(id, changes);
      return;
    }
    const state = stateOf(task);
    if (state < TaskState.ASSIGNED) return;
    const flaw = taskFlaw(task);
    if (flaw !== null) {
      // Only once, and not for one that is over: its last writer may be a node that knew another SwarmKit. N4
      this.#refused ??= new Set();
      if (!this.#refused.has(id) && state <= TaskState.RUNNING) this.#refuse(task, flaw);
      this.#refused.add(id);
      return;
    }
    if (known === undefined) {
      if (state <= TaskState.RUNNING) this.#hold(id, taskDependencies(task), changes);
      changes.tasks.push(change(Action.UPDATE, { task }));
      this.#tasks.set(id, task);
      return;
    }
    if (known !== task && (state === TaskState.ASSIGNED || differsForNode(known, task))) {
      changes.tasks.push(change(Action.UPDATE, { task }));
    }
    this.#tasks.set(id, task);
    if (state > TaskState.RUNNING) this.#release(id, changes);
  }

  #lookAtVolume(id: string, volume: Volume | undefined, changes: Changes): void {
    const status = volume?.publishStatus.find((published) => published.nodeId === this.#nodeId);
    const said = this.#volumes?.get(id);
    if (volume === undefined || status === undefined || status.state === PublishState.PENDING_UNPUBLISH) {
      this.#volumes?.delete(id);
      this.#release(`volume/${id}`, changes);
      return;
    }
    if (status.state === PublishState.PENDING_PUBLISH) return;
    const action = status.state === PublishState.PUBLISHED ? Action.UPDATE : Action.REMOVE;
    // Without a driver it would crash the engine.
    if (volume.spec?.driver == null || (said?.action === action && said.volume === volume)) return;
    if (action === Action.UPDATE) this.#hold(`volume/${id}`, volumeDependencies(volume), changes);
    const assignment = VolumeAssignment.create({
      id,
      volumeId: volume.volumeInfo?.volumeId ?? "",
      driver: volume.spec.driver,
      volumeContext: volume.volumeInfo?.volumeContext ?? {},
      publishContext: status.publishContext,
      accessMode: volume.spec.accessMode,
      secrets: volume.spec.secrets,
    });
    (this.#volumes ??= new Map()).set(id, { volume, action });
    changes.volumes.push(change(action, { volume: assignment }));
  }

  /** N3 */
  #hold(user: string, dependencies: readonly Dependency[], changes: Changes): void {
    if (dependencies.length === 0 || this.#held?.has(user) === true) return;
    this.#users ??= new Map();
    const held: Dependency[] = [];
    for (const dependency of dependencies) {
      const users = this.#users.get(dependency);
      if (users === undefined) {
        const assignment = this.#find(dependency);
        // Not in the store: the task is sent all the same and fails at its start, with a text of the engine's own.
        if (assignment === null) continue;
        this.#users.set(dependency, new Set([user]));
        changes.dependencies.push(change(Action.UPDATE, assignment));
      } else {
        users.add(user);
      }
      held.push(dependency);
    }
    (this.#held ??= new Map()).set(user, held);
  }

  #release(user: string, changes: Changes): void {
    for (const dependency of this.#held?.get(user) ?? []) {
      const users = this.#users?.get(dependency);
      if (users === undefined) continue;
      users.delete(user);
      if (users.size > 0) continue;
      this.#users?.delete(dependency);
      const id = dependency.slice(dependency.indexOf("/") + 1);
      const isSecret = dependency.startsWith("secret/");
      changes.removals.push(
        change(Action.REMOVE, isSecret ? { secret: Secret.create({ id }) } : { config: Config.create({ id }) }),
      );
    }
    this.#held?.delete(user);
  }

  #find(dependency: Dependency): Partial<Assignment> | null {
    const id = dependency.slice(dependency.indexOf("/") + 1);
    if (dependency.startsWith("secret/")) {
      const secret = this.#source.secret(id);
      // The value of a secret with a driver is its plugin's to give; without the plugin there is none.
      return secret === undefined || secret.spec?.driver != null ? null : { secret };
    }
    const config = this.#source.config(id);
    return config === undefined ? null : { config };
  }
}

class Changes {
  readonly dependencies: AssignmentChange[] = [];
  readonly tasks: AssignmentChange[] = [];
  readonly volumes: AssignmentChange[] = [];
  readonly removals: AssignmentChange[] = [];

  all(): AssignmentChange[] {
    // A dependency that one task gave up and another took in the same batch was never removed at the node's side, so
    // its REMOVE must not follow an UPDATE that it overtook: the last word on each is kept.
    const last = new Map<string, AssignmentChange>();
    for (const item of [...this.removals, ...this.dependencies]) last.set(nameOf(item), item);
    const dependencies = this.dependencies.filter((item) => last.get(nameOf(item)) === item);
    const removals = this.removals.filter((item) => last.get(nameOf(item)) === item);
    return [...dependencies, ...this.volumes, ...this.tasks, ...removals];
  }
}

function nameOf({ assignment }: AssignmentChange): string {
  return assignment?.secret != null ? `secret/${assignment.secret.id}` : `config/${assignment?.config?.id ?? ""}`;
}

/** The task's secrets and configs: references of the spec first, then the container's own. */
function taskDependencies(task: Task): readonly Dependency[] {
  const { spec } = task;
  if (spec === null) return [];
  const found = new Set<Dependency>();
  for (const { resourceId, resourceType } of spec.resourceReferences) {
    if (resourceType === ResourceType.SECRET) found.add(`secret/${resourceId}`);
    if (resourceType === ResourceType.CONFIG) found.add(`config/${resourceId}`);
  }
  for (const { secretId } of spec.container?.secrets ?? []) found.add(`secret/${secretId}`);
  for (const { configId } of spec.container?.configs ?? []) found.add(`config/${configId}`);
  return [...found];
}

function volumeDependencies(volume: Volume): readonly Dependency[] {
  return (volume.spec?.secrets ?? []).map(({ secret }): Dependency => `secret/${secret}`);
}

function stateOf(task: Task): TaskState {
  return task.status?.state ?? TaskState.NEW;
}

function change(action: Action, assignment: Partial<Assignment>): AssignmentChange {
  return AssignmentChange.create({ assignment: Assignment.create(assignment), action });
}
