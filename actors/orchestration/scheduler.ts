/**
 * The leader's scheduler: lets `machines/scheduling/rounds.ts` follow the store, runs a round when its chart requests it, and
 * proposes the round's decisions.
 *
 * A1: every round is based on the replica's current version; the ledger skips operations on objects that have changed since,
 *     and their tasks return here.
 */
import {
  schedulerLimits,
  schedulerMachine,
  type SchedulerVerdict,
} from "../../machines/scheduling/scheduler.machine.ts";
import { SchedulerRounds } from "../../machines/scheduling/rounds.ts";
import type { Assignment, Explanation } from "../../machines/scheduling/round.ts";
import type { Tracked } from "../../machines/scheduling/tracked.ts";
import { assertMaySet, moved } from "../../machines/task-moves.ts";
import { taskMachine } from "../../machines/task.machine.ts";
import { waitOf } from "../../machines/wait-meta.ts";
import { timestampOf } from "../../proto/time.ts";
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
import { eachChange, inNoChange } from "../../runtime/store/change-traces.ts";
import type { Commit } from "../../runtime/store/store.ts";
import type { Environment, Running } from "../environment.ts";
import { proposalOperationsMax } from "../ledger/proposal-batch.ts";
import { Reconciler, type Round } from "./reconciler.ts";

/** Timeout of proposals to the ledger, which is on this same manager, in milliseconds. */
const proposeTimeoutMs = 5_000;
/**
 * Maximum operations of one round: two proposals, about 15 ms in which this manager does nothing else; the first is in transit
 * while more are built.
 */
const roundOperationsMax = 2 * proposalOperationsMax;

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
  readonly volumes: string[];
}

class SchedulerActor implements Scheduler {
  readonly #env: Environment;
  readonly #rounds: SchedulerRounds;
  readonly #loop: Reconciler<typeof schedulerMachine>;
  readonly #unsubscribe: () => void;
  readonly #metrics: ReturnType<typeof metricsOf>;
  #stopped = false;

  constructor(env: Environment) {
    this.#env = env;
    this.#metrics = metricsOf(env);
    const { store, times } = env;
    this.#rounds = new SchedulerRounds({
      times,
      volumes: () => store.all("volume"),
      nodes: () => store.all("node"),
      tasks: () => store.all("task"),
      task: (id) => store.get("task", id),
    });
    this.#loop = new Reconciler(env, {
      machine: schedulerMachine,
      id: `scheduler/${env.managerId}`,
      input: schedulerLimits,
      decide: () => this.#decide(),
      effects: {
        releaseHeld: () => {
          if (this.#rounds.releaseHeld()) this.#loop.wake();
        },
      },
    });
    const watch = store.watch((commit) => this.#onCommit(commit));
    this.#unsubscribe = () => watch.unsubscribe();
    if (this.#rounds.hasWork) this.#loop.wake();
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#unsubscribe();
    this.#loop.stop();
    this.#metrics.waiting.set(0);
  }

  explain(task: Task): readonly Reason[] {
    const standing = this.#rounds.standingOf(task);
    const since = task.status?.timestamp ?? null;
    switch (standing?.kind) {
      case undefined:
        return [];
      case "proposed": {
        const facts = { "a node": `node ${standing.nodeId}` };
        return [Reason.create({ ...waitOf(schedulerMachine, "proposals.proposing", facts), since })];
      }
      case "held":
        return [Reason.create({ ...waitOf(schedulerMachine, "later.holding"), since })];
      case "waiting": {
        const { nodes, text } = standing.told;
        const wait = waitOf(taskMachine, "PENDING");
        const waitingFor = `${wait.waitingFor}: ${task.status?.err || text}`;
        return [Reason.create({ ...wait, waitingFor, since, tried: nodes })];
      }
    }
  }

  #onCommit(commit: Commit): void {
    const rounds = this.#rounds;
    const { time } = commit;
    let hasWork = false;
    eachChange(commit, ({ action, object, old, table }) => {
      const isGone = action === "remove";
      switch (table) {
        case "task":
          if (isGone) rounds.removeTask(object.id);
          else if (rounds.putTask(object, old, time)) {
            hasWork = true;
            this.#loop.noteCause();
          }
          break;
        case "node":
          if (isGone) rounds.removeNode(object.id);
          else rounds.putNode(object);
          break;
        case "volume":
          if (isGone) rounds.removeVolume(object.id);
          else rounds.putVolume(object);
          break;
        default:
      }
    });
    inNoChange(() => {
      if (hasWork || rounds.hasWork) this.#loop.wake();
    });
  }

  #decide(): Round<SchedulerVerdict> {
    const { clock } = this.#env;
    const now = clock.now();
    const proposals = schedulerLimits.proposalsMax - this.#loop.snapshot.context.proposals;
    const round = this.#rounds.round(now, Math.min(roundOperationsMax, proposals * proposalOperationsMax));
    this.#metrics.waiting.set(this.#rounds.waiting);
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
      chunk.operations.push(write.explained(explanation));
      chunk.explained.push(explanation.task.id);
      if (chunk.operations.length === proposalOperationsMax) flush();
    }
    for (const volume of round.volumes) {
      chunk.operations.push(Operation.create({ update: StoreObject.create({ volume }) }));
      chunk.volumes.push(volume.id);
      if (chunk.operations.length === proposalOperationsMax) flush();
    }
    flush();
    return { verdict: { isPartial: round.hasMore, hasStale: round.hasStale } };
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
    const { proposer, telemetry } = this.#env;
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
    const isCommitted = outcome.kind === "committed";
    const { taken, returned } = this.#rounds.settled(chunk, isCommitted);
    this.#metrics.decisions.add(taken);
    this.#loop.send({ type: "proposal.settled", returned });
    // Refused work waits for the retry delay.
    if (isCommitted && this.#rounds.hasWork) this.#loop.wake();
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
