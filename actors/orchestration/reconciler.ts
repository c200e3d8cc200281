/** Hosts a chart with a reconcile loop (`machines/reconcile.ts`), and the writes of rounds that do not wait for them. */
import type { ReconcileContext, ReconcileEvent, Verdict } from "../../machines/reconcile.ts";
import type { Operation, Task } from "../../proto/gen/messages.ts";
import type { Host } from "../../runtime/host.ts";
import type { Environment, Running } from "../environment.ts";
import type { Owner } from "../hosted.ts";
import type { Writer } from "./part.ts";

export interface Round<Of extends Verdict> {
  readonly verdict: Of;
  /** Writes the decision; its end must be sent to the loop. Absent: there is nothing to wait for. */
  readonly write?: () => void;
}

interface Listener<Context, Event> {
  readonly actor: { getSnapshot(): { readonly context: Context; readonly value: unknown } };
  send(event: Event): void;
  stop(): void;
}

/** A chart with a reconcile loop, prepared by `hosted`. */
export interface ReconcileChart<Context extends ReconcileContext, Own, Input> {
  start(
    host: Host,
    id: string,
    input: Input,
    owner: Owner,
  ): Listener<Context, Own | ReconcileEvent<Context["verdict"]>>;
}

interface Options<Context extends ReconcileContext, Own, Input> {
  readonly chart: ReconcileChart<Context, Own, Input>;
  readonly id: string;
  readonly input: Input;
  /** One round. */
  decide(): Round<Context["verdict"]>;
  /** The chart's own. */
  readonly effects?: Owner["effects"];
}

export class Reconciler<Context extends ReconcileContext, Own = never, Input = void> implements Running {
  readonly #hosted: Listener<Context, Own | ReconcileEvent<Context["verdict"]>>;
  #hasNews = false;
  #isStopped = false;

  constructor(env: Environment, { chart, decide, effects, id, input }: Options<Context, Own, Input>) {
    this.#hosted = chart.start(env.host, id, input, {
      effects: {
        ...effects,
        gather: () => env.clock.soon(() => this.send({ type: "round.due" })),
        decide: () => {
          const { verdict, write } = decide();
          if (this.#isStopped) return;
          this.send({ type: write === undefined ? "round.done" : "decision.made", verdict });
          write?.();
        },
      },
    });
  }

  get snapshot(): { readonly context: Context; readonly value: unknown } {
    return this.#hosted.actor.getSnapshot();
  }

  /** Nothing is sent after `stop`. */
  send(event: Own | ReconcileEvent<Context["verdict"]>): void {
    if (!this.#isStopped) this.#hosted.send(event);
  }

  wake(): void {
    this.send({ type: "work.arrived" });
  }

  /** Wakes it at the end of the commit. */
  note(): void {
    this.#hasNews = true;
  }

  commitEnded(): void {
    if (!this.#hasNews) return;
    this.#hasNews = false;
    this.wake();
  }

  stop(): void {
    this.#isStopped = true;
    this.#hosted.stop();
  }
}

/** Tasks that are written in the background: rounds must skip them until that has settled. */
export class TaskWrites {
  readonly #env: Environment;
  readonly #writer: Writer;
  readonly #settled: (operation: Operation, stored: Task | undefined) => void;
  readonly #ids = new Set<string>();
  #batch: Operation[] = [];

  /** `settled`: called when the operation has happened or was refused, with the task as it then is. */
  constructor(env: Environment, writer: Writer, settled: (operation: Operation, stored: Task | undefined) => void) {
    this.#env = env;
    this.#writer = writer;
    this.#settled = settled;
  }

  has(taskId: string): boolean {
    return this.#ids.has(taskId);
  }

  /** Number of operations to be written by `flush`. */
  get size(): number {
    return this.#batch.length;
  }

  add(operation: Operation): void {
    this.#ids.add(taskIdOf(operation));
    this.#batch.push(operation);
  }

  /** `done`: called after the last operation has settled. */
  flush(done: () => void): void {
    const operations = this.#batch;
    if (operations.length === 0) return;
    this.#batch = [];
    this.#writer.write(operations, () => {
      for (const operation of operations) {
        const id = taskIdOf(operation);
        this.#ids.delete(id);
        this.#settled(operation, this.#env.store.get("task", id));
      }
      done();
    });
  }
}

function taskIdOf({ remove, task }: Operation): string {
  return task?.id ?? remove?.id ?? "";
}
