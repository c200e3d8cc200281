/**
 * Reports the tasks' states to the manager: one task per call, each task's states in order, several tasks at once.
 *
 * R1: at most one call per task is pending, so its states arrive in order.
 * R2: after a session was rebuilt, each known task's newest status is reported again, and only that.
 * R3: memory is bounded by the tasks: a task has at most one waiting report per state.
 */
import type { TaskStatus } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";

/** Makes one call; rejects as the channel does. `traceparent` is empty for an untraced task. */
type SendStatus = (taskId: string, status: TaskStatus, traceparent: string) => Promise<unknown>;

interface Line {
  newest: TaskStatus;
  waiting: TaskStatus[];
  isSending: boolean;
  traceparent: string;
}

/** Maximum pending calls. SwarmKit's agent makes one at a time; a few more hide the round trip without loading the manager. */
const statusCallsMax = 4;

export class StatusReports {
  readonly #lines = new Map<string, Line>();
  /** Tasks with reports to send, each once. */
  readonly #ready = new Set<string>();
  readonly #onFailure: (error: unknown) => void;
  #send: SendStatus | null = null;
  #calls = 0;

  /** `onFailure`: called when a call fails in a way that ends the session. */
  constructor(onFailure: (error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  /** To be called when a session is established: reports everything over it. R2 */
  attach(send: SendStatus): void {
    this.#send = send;
    this.#calls = 0;
    this.#ready.clear();
    for (const [taskId, line] of this.#lines) {
      line.waiting = [line.newest];
      line.isSending = false;
      this.#ready.add(taskId);
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
    line.traceparent = traceparent;
    if (this.#send === null) return;
    // R3
    if (line.waiting.at(-1)?.state === status.state) line.waiting.pop();
    line.waiting.push(status);
    if (!line.isSending) this.#ready.add(taskId);
    this.#pump();
  }

  forget(taskId: string): void {
    this.#lines.delete(taskId);
    this.#ready.delete(taskId);
  }

  #pump(): void {
    const send = this.#send;
    if (send === null) return;
    for (const taskId of this.#ready) {
      if (this.#calls >= statusCallsMax) return;
      this.#ready.delete(taskId);
      const line = this.#lines.get(taskId);
      const status = line?.waiting.shift();
      if (line === undefined || status === undefined) continue;
      line.isSending = true;
      this.#calls += 1;
      void this.#call(send, taskId, line, status);
    }
  }

  async #call(send: SendStatus, taskId: string, line: Line, status: TaskStatus): Promise<void> {
    let failure: unknown = null;
    try {
      await send(taskId, status, line.traceparent);
    } catch (error) {
      // The manager does not have this task any more (worker protocol §0.13).
      if (!(error instanceof RpcError && error.code === Status.NOT_FOUND)) failure = error;
    }
    if (this.#send !== send) return;
    this.#calls -= 1;
    line.isSending = false;
    if (failure !== null) {
      this.detach();
      this.#onFailure(failure);
      return;
    }
    if (line.waiting.length > 0 && this.#lines.get(taskId) === line) this.#ready.add(taskId);
    this.#pump();
  }
}
