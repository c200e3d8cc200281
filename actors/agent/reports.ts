/**
 * Reports the tasks' states to the manager: everything that waits in one call, each task's states in order, one call at a time for each
 * trace. SwarmKit's agent sends one state per call, which costs a manager about twice as much.
 *
 * R1: at most one call per task is pending, so its states arrive in order.
 * R2: after a session was rebuilt, each known task's newest status is reported again, and only that.
 * R3: memory is bounded by the tasks: a task has at most one waiting report per state.
 * R4: a report of a task that the manager does not have does not keep it from getting the others.
 */
import { TaskStatus } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";

interface StatusUpdate {
  readonly taskId: string;
  readonly status: TaskStatus;
}

/** Makes one call; rejects as the channel does. `traceparent` is empty for untraced tasks. */
type SendStatuses = (updates: readonly StatusUpdate[], traceparent: string) => Promise<unknown>;

interface Line {
  newest: TaskStatus;
  waiting: TaskStatus[];
  isSending: boolean;
  traceparent: string;
}

interface Taken extends StatusUpdate {
  readonly line: Line;
}

/** Maximum pending calls, each of another trace: a few hide the round trip without loading the manager. */
const statusCallsMax = 4;
/** Maximum reports in a call, and bytes of all but the last: far less than managers accept, 4 MiB. The others wait for the next call. */
const updatesPerCallMax = 1_000;
const bytesPerCallMax = 256 * 1024;

export class StatusReports {
  readonly #lines = new Map<string, Line>();
  /** Tasks with reports to send, each once, by their trace. */
  readonly #ready = new Map<string, Set<string>>();
  readonly #onFailure: (error: unknown) => void;
  #send: SendStatuses | null = null;
  /** Traces with a pending call. */
  readonly #calls = new Set<string>();

  /** `onFailure`: called when a call fails in a way that ends the session. */
  constructor(onFailure: (error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  /** To be called when a session is established: reports everything over it. R2 */
  attach(send: SendStatuses): void {
    this.#send = send;
    this.#calls.clear();
    this.#ready.clear();
    for (const [taskId, line] of this.#lines) {
      line.waiting = [line.newest];
      line.isSending = false;
      this.#isReady(taskId, line);
    }
    this.#pump();
  }

  /** To be called when the session ends. Answers to its calls no longer count. */
  detach(): void {
    this.#send = null;
  }

  /** Adds a status recorded by an earlier agent process: reported at the next `attach`. */
  know(taskId: string, status: TaskStatus): void {
    this.#lines.set(taskId, { newest: status, waiting: [], isSending: false, traceparent: "" });
  }

  report(taskId: string, status: TaskStatus, traceparent = ""): void {
    let line = this.#lines.get(taskId);
    if (line === undefined)
      this.#lines.set(taskId, (line = { newest: status, waiting: [], isSending: false, traceparent }));
    line.newest = status;
    if (line.traceparent !== traceparent) this.#isNotReady(taskId, line);
    line.traceparent = traceparent;
    if (this.#send === null) return;
    // R3
    if (line.waiting.at(-1)?.state === status.state) line.waiting.pop();
    line.waiting.push(status);
    if (!line.isSending) this.#isReady(taskId, line);
    this.#pump();
  }

  forget(taskId: string): void {
    const line = this.#lines.get(taskId);
    if (line === undefined) return;
    this.#lines.delete(taskId);
    this.#isNotReady(taskId, line);
  }

  #isReady(taskId: string, { traceparent }: Line): void {
    const ready = this.#ready.get(traceparent);
    if (ready === undefined) this.#ready.set(traceparent, new Set([taskId]));
    else ready.add(taskId);
  }

  #isNotReady(taskId: string, { traceparent }: Line): void {
    const ready = this.#ready.get(traceparent);
    ready?.delete(taskId);
    if (ready?.size === 0) this.#ready.delete(traceparent);
  }

  #pump(): void {
    for (const traceparent of this.#ready.keys()) {
      const send = this.#send;
      if (send === null || this.#calls.size >= statusCallsMax) return;
      if (this.#calls.has(traceparent)) continue;
      this.#calls.add(traceparent);
      void this.#call(send, this.#take(traceparent), traceparent);
    }
  }

  /** The waiting reports of a trace, of which their tasks get no others before the answer. R1 */
  #take(traceparent: string): readonly Taken[] {
    const updates: Taken[] = [];
    let bytes = 0;
    for (const taskId of this.#ready.get(traceparent) ?? []) {
      const line = this.#lines.get(taskId) as Line;
      while (line.waiting.length > 0 && updates.length < updatesPerCallMax && bytes < bytesPerCallMax) {
        const status = line.waiting.shift() as TaskStatus;
        line.isSending = true;
        updates.push({ taskId, status, line });
        bytes += TaskStatus.encode(status).length;
      }
      if (!line.isSending) break;
      this.#isNotReady(taskId, line);
    }
    return updates;
  }

  async #call(send: SendStatuses, updates: readonly Taken[], traceparent: string): Promise<void> {
    const failure = await this.#outcome(send, updates, traceparent);
    if (this.#send !== send) return;
    this.#calls.delete(traceparent);
    for (const { line, taskId } of updates) {
      line.isSending = false;
      if (line.waiting.length > 0 && this.#lines.get(taskId) === line) this.#isReady(taskId, line);
    }
    if (failure !== null) {
      this.detach();
      this.#onFailure(failure);
      return;
    }
    this.#pump();
  }

  /** Null unless the session is to end. */
  async #outcome(send: SendStatuses, updates: readonly StatusUpdate[], traceparent: string): Promise<unknown> {
    try {
      await send(updates, traceparent);
      return null;
    } catch (error) {
      if (!(error instanceof RpcError && error.code === Status.NOT_FOUND)) return error;
      // The manager does not have one of the tasks any more (worker protocol §0.13), and does not say which. R4
      if (updates.length === 1) return null;
      const half = updates.length >> 1;
      for (const part of [updates.slice(0, half), updates.slice(half)]) {
        if (this.#send !== send) return null;
        const failure = await this.#outcome(send, part, traceparent);
        if (failure !== null) return failure;
      }
      return null;
    }
  }
}
