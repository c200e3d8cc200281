/**
 * The assignments that a stream has sent to its node, and those that it must send next (worker protocol §4.6). Pure: reads a
 * source and returns changes.
 *
 * N1: a task is sent from ASSIGNED on, and REMOVE for it only when it was deleted from the store (or left the node).
 * N2: changes of only status and meta are not sent while the state is above ASSIGNED: the node reported them itself.
 * N3: a secret or config is sent before or with its first user that is not past RUNNING, and removed after its last.
 * N4: a task with a flaw that crashes engines is never sent; `refuse` is called for it.
 */
import { isEnded, observedState } from "../task.ts";
import { mayAdvance } from "../task.machine.ts";
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

/** The tables from which assignments are computed. */
export interface AssignmentSource {
  task(id: string): Task | undefined;
  secret(id: string): Secret | undefined;
  config(id: string): Config | undefined;
  volume(id: string): Volume | undefined;
  tasksOf(nodeId: string): Iterable<Task>;
  volumes(): Iterable<Volume>;
}

/** The key of a dependency, its table and id: `secret/…`, `config/…`. Tasks are keyed by id alone. */
type Dependency = `secret/${string}` | `config/${string}`;

/**
 * A cheap check for the one watcher that serves all streams: whether the streams of the task's node must examine the change.
 * Never misses a change that matters.
 */
export function concernsNode(old: Task | null, task: Task): boolean {
  const state = observedState(task);
  if (state < TaskState.ASSIGNED) return false;
  if (old === null || observedState(old) < TaskState.ASSIGNED || state === TaskState.ASSIGNED) return true;
  if (!sharesAllButStatus(old, task)) return true;
  // Past RUNNING, the task no longer uses its secrets and configs.
  return isEnded(state) && !isEnded(observedState(old));
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

/** Exact: whether the two differ in more than status and meta. */
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
  /** By task or volume: the dependencies that it uses. */
  #held: Map<string, readonly Dependency[]> | null = null;
  #users: Map<Dependency, Set<string>> | null = null;
  /** By volume: what was last sent. */
  #volumes: Map<string, { readonly volume: Volume; readonly action: Action }> | null = null;
  #refused: Set<string> | null = null;

  constructor(nodeId: string, source: AssignmentSource, refuse: (task: Task, flaw: string) => void) {
    this.#nodeId = nodeId;
    this.#source = source;
    this.#refuse = refuse;
  }

  /** The complete set for the node, as changes of a COMPLETE message. Only for a new set. */
  complete(): AssignmentChange[] {
    const changes = new Changes();
    for (const task of this.#source.tasksOf(this.#nodeId)) this.#diffTask(task.id, task, changes);
    for (const volume of this.#source.volumes()) this.#diffVolume(volume.id, volume, changes);
    return changes.all();
  }

  /**
   * Changes for the node in these tasks and volumes; empty without any. Dependencies come before their users and are
   * removed after them, so the list may be split into messages anywhere.
   */
  changes(taskIds: Iterable<string>, volumeIds: Iterable<string>): AssignmentChange[] {
    const changes = new Changes();
    for (const id of taskIds) this.#diffTask(id, this.#source.task(id), changes);
    for (const id of volumeIds) this.#diffVolume(id, this.#source.volume(id), changes);
    return changes.all();
  }

  #diffTask(id: string, task: Task | undefined, changes: Changes): void {
    const known = this.#tasks.get(id);
    if (task === undefined || task.nodeId !== this.#nodeId) {
      this.#refused?.delete(id);
      if (known === undefined) return;
      this.#tasks.delete(id);
      changes.tasks.push(change(Action.REMOVE, { task: Task.create({ id }) }));
      this.#release(id, changes);
      return;
    }
    const state = observedState(task);
    if (state < TaskState.ASSIGNED) return;
    const flaw = taskFlaw(task);
    if (flaw !== null) {
      // Only once, and not for an ended task: its last writer may be a node with another version of SwarmKit. N4
      this.#refused ??= new Set();
      if (!this.#refused.has(id) && mayAdvance(state, TaskState.REJECTED, "manager")) this.#refuse(task, flaw);
      this.#refused.add(id);
      return;
    }
    if (known === undefined) {
      if (!isEnded(state)) this.#hold(id, taskDependencies(task), changes);
      changes.tasks.push(change(Action.UPDATE, { task }));
      this.#tasks.set(id, task);
      return;
    }
    if (known !== task && (state === TaskState.ASSIGNED || differsForNode(known, task))) {
      changes.tasks.push(change(Action.UPDATE, { task }));
    }
    this.#tasks.set(id, task);
    if (isEnded(state)) this.#release(id, changes);
  }

  #diffVolume(id: string, volume: Volume | undefined, changes: Changes): void {
    const status = volume?.publishStatus.find((published) => published.nodeId === this.#nodeId);
    const said = this.#volumes?.get(id);
    if (volume === undefined || status === undefined || status.state === PublishState.PENDING_UNPUBLISH) {
      this.#volumes?.delete(id);
      this.#release(`volume/${id}`, changes);
      return;
    }
    if (status.state === PublishState.PENDING_PUBLISH) return;
    const action = status.state === PublishState.PUBLISHED ? Action.UPDATE : Action.REMOVE;
    // A volume without a driver would crash the engine.
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
        // Not in the store: the task is sent anyway and fails at its start, with an error from the engine.
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
      // Only its plugin can provide the value of a secret with a driver; without the plugin there is none.
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
    // A dependency that one task released and another acquired in the same batch was never removed on the node, so no REMOVE
    // may follow the UPDATE that overtook it: only the last change of each is kept.
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

/** The task's secrets and configs: first the references of the spec, then those of the container. */
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

function change(action: Action, assignment: Partial<Assignment>): AssignmentChange {
  return AssignmentChange.create({ assignment: Assignment.create(assignment), action });
}
