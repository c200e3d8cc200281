/**
 * Writes nodes' reports on tasks and volumes to the log. The hottest path of a manager (each task reports five states or more):
 * a call costs a few look-ups, one operation and no timer; calls of all nodes share a proposal and its promise.
 *
 * P1: a report is answered once it is queued here under its task: it reaches the log, or this process dies with all its
 *     sessions; a node then registers elsewhere and reports all its tasks again. Only the newest queued report of a task is
 *     written. Above `reportsWaitingMax` tasks an answer waits for the log, and below for its turn.
 * P2: a node reports only its own tasks; a call with one foreign task changes nothing.
 * P3: a report that an earlier one has overtaken is not written: states only grow.
 * P4: a report that a node may not make is not written, but counted (machines/dispatcher/task-report.ts, W1); an accepted one
 *     is small enough to be written (W2).
 * P5: reports that repeat a state with other text are written as fast as the node's budget allows, the newest of each task; the
 *     others are queued here, and answered.
 * P6: releases of volumes are written as fast as the node's budget allows; beyond it the node is refused, and reports again.
 */
import {
  Operation,
  StoreObject,
  TaskPatch,
  TaskState,
  TaskStatus,
  UpdateTaskStatusResponse,
  UpdateVolumeStatusResponse,
  Volume,
  VolumePublishStatus,
  VolumePublishStatus_State as PublishState,
  ProposeRequest_Mode,
  type Task,
  type Timestamp,
  type UpdateTaskStatusRequest,
  type UpdateVolumeStatusRequest,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { examineReport, repeatBudget, type Examined } from "../../machines/dispatcher/task-report.ts";
import { maySet } from "../../machines/task.machine.ts";
import { moved } from "../../machines/task-moves.ts";
import { isSameStatus, observedState } from "../../machines/task.ts";
import { WriteBudget } from "../../machines/write-budget.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import type { Environment } from "../environment.ts";
import { AnswerPace } from "./answer-pace.ts";
import { ProposalBatch } from "../ledger/proposal-batch.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";

/**
 * How long the first report of a batch waits for others, in milliseconds: long enough that the states which a task passes
 * through at once are written as one, short enough not to be noticed.
 */
const reportBatchMs = 20;
/**
 * The same under load: calls take longer then, and five states of a task would be five writes, each as expensive as the calls.
 * SwarmKit always waits this long.
 */
const busyReportBatchMs = 100;
/**
 * Maximum tasks with a report that is not in the log yet: about 20 MB. Beyond it, reporters wait, which slows their nodes down.
 */
const reportsWaitingMax = 50_000;
/** Approximate encoded size of an operation without its status. */
const operationBytes = 100;
/** Interval of checking whether reports deferred by their node's budget may be written, in milliseconds. */
const repeatLookMs = 1_000;
/**
 * Minimum interval of log lines about ignored or truncated reports, in milliseconds; the others are counted in the next line.
 */
const oddReportLineMs = 10_000;
/** Attempts for a volume that is changed concurrently. */
const volumeAttemptsMax = 5;
const volumeTimeoutMs = 5_000;
/** P6. Each report writes the whole volume: about 500 bytes, and 100 for each node that it is published to. */
const volumeBudget = { bytesMax: 1_024 * 1_024, bytesPerS: 16 * 1_024 };

/** A report deferred by its node's budget. P5 */
interface Deferred {
  readonly nodeId: string;
  readonly operation: Operation;
  readonly bytes: number;
}

export class TaskReports {
  readonly #env: Environment;
  readonly #batch: ProposalBatch<UpdateTaskStatusResponse>;
  readonly #answer = UpdateTaskStatusResponse.create();
  readonly #pace: AnswerPace<UpdateTaskStatusResponse>;
  /** By task id. */
  readonly #deferred = new Map<string, Deferred>();
  readonly #budget = new WriteBudget(repeatBudget);
  readonly #volumeBudget = new WriteBudget(volumeBudget);
  #look: TimerHandle | null = null;
  #oddSince = 0;
  #oddLineAt = -Infinity;
  #now = 0;
  #appliedAt: Timestamp = timestampOf(0);

  constructor(env: Environment) {
    this.#env = env;
    this.#pace = new AnswerPace(env.clock, this.#answer);
    this.#batch = new ProposalBatch(env, {
      name: "reports",
      delayMs: reportBatchMs,
      busyDelayMs: busyReportBatchMs,
      done: this.#answer,
      unavailable: null,
    });
  }

  /** Throws PERMISSION_DENIED for a task of another node (P2). The caller's session has been checked. */
  update(
    nodeId: string,
    updates: UpdateTaskStatusRequest["updates"],
    traceparent: string,
  ): Promise<UpdateTaskStatusResponse> | UpdateTaskStatusResponse {
    const tasks = updates.map(({ taskId, status }) => (status === null ? undefined : this.#taskOf(nodeId, taskId)));
    let answer: Promise<UpdateTaskStatusResponse> | null = null;
    for (let at = 0; at < tasks.length; at += 1) {
      const task = tasks[at];
      const status = updates[at]?.status ?? null;
      // An agent may report a task deleted meanwhile; it gets OK, and then the order to remove it.
      if (task !== undefined && status !== null) answer = this.#report(nodeId, task, status) ?? answer;
    }
    if (answer !== null && traceparent !== "") this.#trace(traceparent, updates, answer);
    if (answer !== null && this.#batch.size > reportsWaitingMax) return answer;
    return this.#pace.give();
  }

  /** P2 */
  #taskOf(nodeId: string, taskId: string): Task | undefined {
    const task = this.#env.store.get("task", taskId);
    if (task !== undefined && task.nodeId !== nodeId)
      throw new RpcError(Status.PERMISSION_DENIED, "cannot update a task not assigned this node");
    return task;
  }

  /** The span from a report's arrival to its commit. Only agents that record a trace send its context. */
  #trace(
    traceparent: string,
    updates: UpdateTaskStatusRequest["updates"],
    answer: Promise<UpdateTaskStatusResponse>,
  ): void {
    const span = continueSpan(this.#env, spans.taskReport, traceparent);
    if (span === null) return;
    const [first] = updates;
    describeSpan(span, spans.taskReport, {
      "muster.task.id": first?.taskId ?? "",
      "muster.task.state": first?.status?.state ?? 0,
    });
    answer.then(
      () => endSpan(this.#env, span),
      (error: unknown) => endSpan(this.#env, span, error),
    );
  }

  /** Moves a task that must not reach its node to REJECTED, with the reason for operators. */
  refuse(task: Task, flaw: string): void {
    const status = TaskStatus.create({
      timestamp: this.#stamp(),
      state: TaskState.REJECTED,
      message: "task was not sent to its node",
      err: `the task would crash the engine: ${flaw}`,
      appliedBy: this.#env.managerId,
      appliedAt: this.#stamp(),
    });
    const { log, metrics } = this.#env.telemetry;
    metrics.counter("muster_tasks_refused_total", "Tasks that were not sent because they would crash an engine.").add();
    log.error({ task: task.id, node: task.nodeId, flaw }, "task would crash the engine: not sent");
    void this.#batch.add(task.id, moved(task, "manager", status), operationBytes + TaskStatus.encode(status).length);
  }

  /** Throws UNAVAILABLE when the node's budget is used up (P6); earlier volumes of the request are written. */
  async updateVolumes(
    nodeId: string,
    updates: UpdateVolumeStatusRequest["updates"],
  ): Promise<UpdateVolumeStatusResponse> {
    for (const { id, unpublished } of updates) {
      if (unpublished) await this.#unpublish(nodeId, id);
    }
    return UpdateVolumeStatusResponse.create();
  }

  /** Forgets a node without a session here: it reports everything again where it registers next. */
  forget(nodeId: string): void {
    // The budget is not reset by a new connection.
    if (this.#env.store.get("node", nodeId) === undefined) {
      this.#budget.forget(nodeId);
      this.#volumeBudget.forget(nodeId);
    }
    for (const [taskId, { nodeId: reporter }] of this.#deferred) if (reporter === nodeId) this.#deferred.delete(taskId);
  }

  stop(): void {
    if (this.#look !== null) this.#env.clock.clearTimeout(this.#look);
    this.#look = null;
    this.#deferred.clear();
    this.#batch.stop();
  }

  /** Null when there is nothing to write, or not yet. */
  #report(nodeId: string, task: Task, status: TaskStatus): Promise<UpdateTaskStatusResponse> | null {
    const pending = this.#batch.waiting(task.id);
    const waiting = pending?.task?.status ?? null;
    const before = waiting?.state ?? observedState(task);
    const examined = examineReport(before, status);
    if (examined.kind === "ignored") {
      if (examined.reason === "foreign") this.#noteOdd(nodeId, task, status, examined);
      // The caller still waits for the earlier report.
      return pending === undefined ? null : this.#batch.add(task.id, pending, 0);
    }
    if (examined.isCut) this.#noteOdd(nodeId, task, status, examined);
    // P3; an agent that registers again also repeats its earlier reports.
    if (waiting === null && task.status !== null && isSameStatus(task.status, examined.status)) return null;
    const stamped = TaskStatus.patch(examined.status, { appliedBy: this.#env.managerId, appliedAt: this.#stamp() });
    const operation = Operation.create({ task: TaskPatch.create({ id: task.id, status: stamped }), reporter: nodeId });
    const bytes = operationBytes + examined.bytes;
    if (status.state === before && !this.#budget.take(nodeId, bytes, this.#env.clock.monotonic())) {
      this.#deferred.set(task.id, { nodeId, operation, bytes });
      this.#look ??= this.#env.clock.setTimeout(() => this.#lookAtDeferred(), repeatLookMs);
      return null;
    }
    this.#deferred.delete(task.id);
    return this.#batch.add(task.id, operation, bytes);
  }

  /** P5. The ledger refuses reports that the task has overtaken. */
  #lookAtDeferred(): void {
    this.#look = null;
    const now = this.#env.clock.monotonic();
    for (const [taskId, { nodeId, operation, bytes }] of this.#deferred) {
      if (!this.#budget.take(nodeId, bytes, now)) continue;
      this.#deferred.delete(taskId);
      const waiting = this.#batch.waiting(taskId)?.task ?? null;
      const deferred = operation.task;
      if (waiting !== null && deferred !== null && !maySet(observedState(waiting), observedState(deferred), "node"))
        continue;
      void this.#batch.add(taskId, operation, bytes);
    }
    if (this.#deferred.size > 0) this.#look = this.#env.clock.setTimeout(() => this.#lookAtDeferred(), repeatLookMs);
  }

  /** P4: counts the report, and logs it or a summary of several. */
  #noteOdd(nodeId: string, task: Task, status: TaskStatus, examined: Examined): void {
    const { log, metrics } = this.#env.telemetry;
    const fields = { node: nodeId, task: task.id, state: status.state, from: task.status?.state };
    if (examined.kind === "ignored")
      metrics
        .counter(
          "muster_task_reports_ignored_total",
          "Reports of states that a node may not set, or that do not exist.",
        )
        .add();
    else metrics.counter("muster_task_reports_cut_total", "Task reports with texts that were truncated.").add();
    this.#oddSince += 1;
    const now = this.#env.clock.now();
    if (now >= this.#oddLineAt && now - this.#oddLineAt < oddReportLineMs) return;
    this.#oddLineAt = now;
    const what =
      examined.kind === "ignored"
        ? "ignored a report of a task state that a node may not set"
        : "truncated the text of a task report";
    log.warn({ ...fields, reports: this.#oddSince }, what);
    this.#oddSince = 0;
  }

  /** One object for all reports of a millisecond. */
  #stamp(): Timestamp {
    const now = this.#env.clock.now();
    if (now !== this.#now) {
      this.#now = now;
      this.#appliedAt = timestampOf(now);
    }
    return this.#appliedAt;
  }

  /**
   * The node has released the volume: the rest is the controller's part. Skips a volume that was removed or whose release is
   * not pending.
   */
  async #unpublish(nodeId: string, id: string): Promise<void> {
    for (let attempt = 0; attempt < volumeAttemptsMax; attempt += 1) {
      const volume = this.#env.store.get("volume", id);
      const status = volume?.publishStatus.find((published) => published.nodeId === nodeId);
      if (volume === undefined || status?.state !== PublishState.PENDING_NODE_UNPUBLISH) return;
      const next = VolumePublishStatus.patch(status, { state: PublishState.PENDING_UNPUBLISH });
      const publishStatus = volume.publishStatus.map((published) => (published === status ? next : published));
      const bytes = Math.min(Volume.encode(volume).length, volumeBudget.bytesMax);
      if (!this.#volumeBudget.take(nodeId, bytes, this.#env.clock.monotonic()))
        throw new RpcError(Status.UNAVAILABLE, `node ${nodeId} exceeded rate limit of reports on volumes`);
      const outcome = await this.#env.proposer.propose({
        operations: [
          Operation.create({ update: StoreObject.create({ volume: Volume.patch(volume, { publishStatus }) }) }),
        ],
        mode: ProposeRequest_Mode.ATOMIC,
        timeoutMs: volumeTimeoutMs,
      });
      if (outcome.kind === "committed") return;
      if (outcome.kind === "refused" && outcome.code === ErrorCode.outOfSequence) continue;
      throw new RpcError(Status.UNAVAILABLE, outcome.message);
    }
    throw new RpcError(Status.ABORTED, `volume ${id} was changed concurrently: try again`);
  }
}
