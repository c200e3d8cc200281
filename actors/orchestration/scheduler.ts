/**
 * The leader's scheduler: follows the store with the bookkeeping of machines/scheduling, runs a round when its chart requests
 * it, and proposes the round's decisions.
 *
 * A1: every round is based on the replica's current version; the ledger skips operations on objects that have changed since,
 *     and their tasks return here.
 * A2: a task with a pending assignment is charged to its node and is in no backlog until the proposal has settled.
 */
import {
  schedulerLimits,
  schedulerMachine,
  type SchedulerVerdict,
} from "../../machines/scheduling/scheduler.machine.ts";
import { groupKey, NodeSet } from "../../machines/scheduling/node-set.ts";
import { Backlog, isWanting } from "../../machines/scheduling/place.ts";
import type { Assignment, Explanation } from "../../machines/scheduling/round.ts";
import type { Tracked } from "../../machines/scheduling/tracked.ts";
import { assertMaySet, moved } from "../../machines/task-moves.ts";
import { taskMachine } from "../../machines/task.machine.ts";
import { waitOf } from "../../machines/wait-meta.ts";
import { timeMs, timestampOf } from "../../proto/time.ts";
import {
  Operation,
  ProposeRequest_Mode,
  Reason,
  StoreObject,
  TaskPatch,
  TaskState,
  TaskStatus,
  type Task,
} from "../../proto/gen/messages.ts";
import type { Commit, ObjectChange } from "../../runtime/store/store.ts";
import type { Environment, Running } from "../environment.ts";
import { proposalOperationsMax } from "../ledger/proposal-batch.ts";
import { Reconciler, type Round } from "./reconciler.ts";

/** Timeout of proposals to the ledger, which is on this same manager, in milliseconds. */
const proposeTimeoutMs = 5_000;
/**
 * Maximum explanations replaced per retry delay: with 200 ms, at most 1,000 writes a second that only update a number of nodes.
 */
const replacementsMax = 200;

/**
 * Maximum operations of one round: two proposals, about 15 ms in which this manager does nothing else; the first is in transit
 * while more are built.
 */
const roundOperationsMax = 2 * proposalOperationsMax;
const roundJudgementsMax = 200_000;

const assignedMessage = "scheduler assigned task to node";
const confirmedMessage = "scheduler confirmed task can run on preassigned node";

export interface Scheduler extends Running {
  /** Why the task has no node yet; empty for a task that does not wait for the scheduler. */
  explain(task: Task): readonly Reason[];
}

export function startScheduler(env: Environment): Scheduler {
  return new SchedulerActor(env);
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Contents of one proposal, by task. */
interface Chunk {
  readonly operations: Operation[];
  readonly assigned: Tracked[];
  readonly explained: string[];
  /** An update that lost against another writer is skipped; that other write brings the volume here again. */
  readonly volumes: string[];
}

class SchedulerActor implements Scheduler {
  readonly #env: Environment;
  readonly #nodes = new NodeSet();
  readonly #backlog = new Backlog(this.#nodes);
  /** Tasks whose proposal failed; the chart decides when they are retried. */
  readonly #held = new Set<string>();
  readonly #loop: Reconciler<typeof schedulerMachine>;
  readonly #unsubscribe: () => void;
  readonly #metrics: ReturnType<typeof metricsOf>;
  #replacements = replacementsMax;
  #stopped = false;

  constructor(env: Environment) {
    this.#env = env;
    this.#metrics = metricsOf(env);
    this.#loop = new Reconciler(env, {
      machine: schedulerMachine,
      id: `scheduler/${env.managerId}`,
      input: schedulerLimits,
      decide: () => this.#decide(),
      effects: { releaseHeld: () => this.#releaseHeld() },
    });
    for (const volume of env.store.all("volume")) this.#nodes.volumes.put(volume);
    for (const node of env.store.all("node")) this.#nodes.put(node);
    for (const task of env.store.all("task")) {
      // No task has a record yet.
      const tracked = this.#nodes.follow(task, null);
      this.#backlog.follow(task, tracked);
      this.#recordFailure(task, null, timeMs(task.status?.timestamp ?? null));
    }
    const watch = env.store.watch((commit) => this.#onCommit(commit));
    this.#unsubscribe = () => watch.unsubscribe();
    if (this.#hasWork()) this.#loop.wake();
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#unsubscribe();
    this.#loop.stop();
    this.#metrics.waiting.set(0);
  }

  explain(task: Task): readonly Reason[] {
    if (!isWanting(task)) return [];
    const since = task.status?.timestamp ?? null;
    const tracked = this.#nodes.tracked(task.id);
    if (tracked?.isPlanned === true) {
      const facts = { "a node": `node ${tracked.on?.id}` };
      return [Reason.create({ ...waitOf(schedulerMachine, "proposals.proposing", facts), since })];
    }
    const told = this.#backlog.describe(task);
    if (told === null) return [Reason.create({ ...waitOf(schedulerMachine, "later.holding"), since })];
    const wait = waitOf(taskMachine, "PENDING");
    const waitingFor = `${wait.waitingFor}: ${task.status?.err || told.text}`;
    return [Reason.create({ ...wait, waitingFor, since, tried: told.nodes })];
  }

  #onCommit(commit: Commit): void {
    let hasWork = false;
    for (const change of commit.changes) {
      if (change.table === "task") hasWork = this.#onTask(change, commit.time) || hasWork;
      else if (change.table === "node") this.#onNode(change);
      else if (change.table === "volume") this.#onVolume(change);
    }
    if (hasWork || this.#hasWork()) this.#loop.wake();
  }

  /**
   * True when a waiting task may be placed now, or a volume must be published elsewhere. A changed node requires no work
   * while no task waits.
   */
  #hasWork(): boolean {
    return this.#backlog.isAwake || this.#nodes.volumes.hasTouched;
  }

  #onVolume({ action, object }: ObjectChange & { readonly table: "volume" }): void {
    if (action === "remove") this.#nodes.volumes.remove(object.id);
    else this.#nodes.volumes.put(object);
  }

  #onNode({ action, object }: ObjectChange & { readonly table: "node" }): void {
    if (action === "remove") this.#nodes.remove(object.id);
    else this.#nodes.put(object);
  }

  /** True when the task itself is new work. */
  #onTask({ action, object, old }: ObjectChange & { readonly table: "task" }, time: number): boolean {
    if (action === "remove") {
      this.#nodes.release(object.id);
      this.#backlog.drop(object.id);
      return false;
    }
    this.#recordFailure(object, old, time);
    const tracked = this.#nodes.tracked(object.id);
    // A2: the plan is kept until the assignment is in the store, or the proposal has settled without it.
    if (tracked?.isPlanned === true && object.status?.state === TaskState.PENDING) return false;
    const left = this.#nodes.follow(object, tracked);
    if (left !== null && left.on !== null) return false;
    return this.#held.has(object.id) ? false : this.#backlog.follow(object, left);
  }

  /** Includes failures that an earlier leader saw: a node that keeps failing a service is avoided whoever leads. */
  #recordFailure(task: Task, old: Task | null, otherwiseAt: number): void {
    const state = task.status?.state;
    if (state !== TaskState.FAILED && state !== TaskState.REJECTED) return;
    if (task.nodeId === "" || old?.status?.state === state) return;
    // When a manager accepted the report: nodes' own clocks may be wrong.
    const appliedAt = task.status?.appliedAt ?? null;
    const at = appliedAt === null ? otherwiseAt : this.#env.times.reachedMs(task);
    this.#nodes.find(task.nodeId)?.recordFailure(groupKey(task), at);
  }

  #decide(): Round<SchedulerVerdict> {
    const { clock } = this.#env;
    const now = clock.now();
    const proposals = schedulerLimits.proposalsMax - this.#loop.snapshot.context.proposals;
    const round = this.#backlog.round(now, {
      operationsMax: Math.min(roundOperationsMax, proposals * proposalOperationsMax),
      replacementsMax: this.#replacements,
      judgementsMax: roundJudgementsMax,
    });
    this.#metrics.waiting.set(this.#backlog.size);
    let chunk = newChunk();
    const flush = (): void => {
      if (chunk.operations.length === 0) return;
      this.#loop.send({ type: "proposal.sent" });
      void this.#propose(chunk);
      chunk = newChunk();
    };
    const write = this.#statuses(now);
    for (const assignment of round.assignments) {
      chunk.operations.push(write.assigned(assignment));
      chunk.assigned.push(assignment.tracked);
      if (chunk.operations.length === proposalOperationsMax) flush();
    }
    for (const explanation of round.explanations) {
      if ((explanation.task.status?.err ?? "") !== "") this.#replacements -= 1;
      chunk.operations.push(write.explained(explanation));
      chunk.explained.push(explanation.task.id);
      if (chunk.operations.length === proposalOperationsMax) flush();
    }
    for (const volume of this.#nodes.takeRepublished()) {
      chunk.operations.push(Operation.create({ update: StoreObject.create({ volume }) }));
      chunk.volumes.push(volume.id);
      if (chunk.operations.length === proposalOperationsMax) flush();
    }
    flush();
    const hasStale = round.hasStale || this.#replacements < replacementsMax;
    return { verdict: { isPartial: round.hasMore, hasStale } };
  }

  /** All assignments of a round share their status. */
  #statuses(now: number): {
    assigned(assignment: Assignment): Operation;
    explained(explanation: Explanation): Operation;
  } {
    const at = timestampOf(now);
    const by = { timestamp: at, appliedBy: this.#env.managerId, appliedAt: at };
    const assigned = TaskStatus.create({ ...by, state: TaskState.ASSIGNED, message: assignedMessage });
    const confirmed = TaskStatus.create({ ...by, state: TaskState.ASSIGNED, message: confirmedMessage });
    return {
      assigned: ({ task, nodeId, generic, volumes, isPreassigned }) => {
        // Set directly, since `create` iterates its argument's keys and this runs for each assignment.
        assertMaySet(task, "scheduler", TaskState.ASSIGNED);
        const patch = TaskPatch.create() as Mutable<TaskPatch>;
        patch.id = task.id;
        patch.nodeId = nodeId;
        patch.status = isPreassigned ? confirmed : assigned;
        patch.assignedGenericResources = generic;
        patch.volumes = volumes;
        const operation = Operation.create() as Mutable<Operation>;
        operation.task = patch;
        return operation;
      },
      explained: ({ task, text }) => {
        const message = task.status?.message ?? "";
        const { PENDING: state } = TaskState;
        return moved(task, "scheduler", TaskStatus.create({ ...by, state, message, err: text }));
      },
    };
  }

  async #propose(chunk: Chunk): Promise<void> {
    const { store, proposer, telemetry } = this.#env;
    const outcome = await proposer.propose({
      operations: chunk.operations,
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: proposeTimeoutMs,
    });
    if (this.#stopped) return;
    if (outcome.kind === "refused")
      telemetry.log.error(
        { code: outcome.code, reason: outcome.message },
        "the ledger refused a decision of the scheduler",
      );
    let returned = 0;
    let taken = 0;
    for (const tracked of chunk.assigned) {
      if (!tracked.isPlanned) {
        taken += 1;
        continue;
      }
      // A2: the plan ends, and the task waits again if it still exists and is wanted.
      const { id } = tracked.task;
      const task = store.get("task", id);
      if (task === undefined) this.#nodes.release(id);
      else this.#nodes.follow(task);
      if (task === undefined || !isWanting(task)) continue;
      this.#held.add(id);
      returned += 1;
    }
    if (outcome.kind !== "committed") {
      for (const id of chunk.explained) this.#backlog.forgetReported(id);
      for (const id of chunk.volumes) this.#nodes.volumes.touch(id);
      returned += chunk.explained.length + chunk.volumes.length;
    }
    this.#metrics.decisions.add(taken);
    this.#loop.send({ type: "proposal.settled", returned });
    // Refused work waits for the retry delay.
    if (outcome.kind === "committed" && this.#hasWork()) this.#loop.wake();
  }

  #releaseHeld(): void {
    this.#replacements = replacementsMax;
    const { store } = this.#env;
    for (const id of this.#held) {
      const task = store.get("task", id);
      if (task !== undefined) this.#backlog.follow(task);
    }
    this.#held.clear();
    if (this.#backlog.size > 0 || this.#nodes.volumes.hasTouched) this.#loop.wake();
  }
}

function newChunk(): Chunk {
  return { operations: [], assigned: [], explained: [], volumes: [] };
}

function metricsOf(env: Environment) {
  const { metrics } = env.telemetry;
  return {
    waiting: metrics.gauge("muster_scheduler_waiting_tasks", "Tasks waiting for a node."),
    decisions: metrics.counter("muster_scheduler_decisions_total", "Assignments accepted by the log."),
  };
}
