/**
 * The orchestrators of one kind, one actor per service: collects what a commit touches and notifies each actor once, at its
 * end; writes their decisions; stops those whose service was removed.
 *
 * O4: a task created by a decision is recorded here by its id until the store has it, so that its own arrival is not a change;
 *     parts of a decision that did not happen are decided again.
 */
import { Operation, StoreObject, type Task, type TaskState } from "../../proto/gen/messages.ts";
import type { Host } from "../../runtime/host.ts";
import { newId } from "../../runtime/ids.ts";
import type { Random } from "../../runtime/ports/index.ts";
import type { Environment } from "../environment.ts";
import type { Owner } from "../hosted.ts";
import { desire, type Writer } from "./part.ts";

/** Events common to all orchestrators' charts. */
type CommonEvent = { readonly type: "round.due" } | { readonly type: "decision.written" };

interface Listener<Event> {
  readonly actor: { send(event: Event): void };
  stop(): void;
}

interface DesireStep {
  readonly kind: "desire";
  readonly task: Task;
  readonly state: TaskState;
}

interface CreateStep {
  readonly kind: "create";
}

/** The orchestrator of one service; kinds of orchestrators extend it. */
export interface Orchestrator {
  readonly serviceId: string;
  /** Ids of tasks created by a decision that the store does not have yet. */
  readonly creating: Set<string>;
}

interface Options<Event, One> {
  readonly env: Environment;
  readonly writer: Writer;
  /** Name of the actors and of their random source. */
  readonly noun: string;
  readonly machine: {
    start(host: Host, id: string, input: { readonly serviceId: string }, owner: Owner): Listener<Event | CommonEvent>;
  };
  /** Event for an actor whose service has changed. */
  readonly touched: Event;
  /** The effects besides `gather`. */
  effects(one: One): Owner["effects"];
}

export class Orchestrators<Event, One extends Orchestrator> {
  readonly #options: Options<Event, One>;
  readonly #random: Random;
  readonly #all = new Map<string, One>();
  readonly #actors = new Map<One, Listener<Event | CommonEvent>>();
  /** To be notified at the end of the commit. */
  readonly #touched = new Set<One>();

  constructor(options: Options<Event, One>) {
    this.#options = options;
    this.#random = options.env.random.fork(options.noun);
  }

  get size(): number {
    return this.#all.size;
  }

  get(serviceId: string): One | undefined {
    return this.#all.get(serviceId);
  }

  values(): Iterable<One> {
    return this.#all.values();
  }

  start(one: One): void {
    const { effects, env, machine, noun } = this.#options;
    const { serviceId } = one;
    this.#all.set(serviceId, one);
    const gather = (): void => env.clock.soon(() => this.send(one, { type: "round.due" }));
    const owner = { effects: { ...effects(one), gather } };
    this.#actors.set(one, machine.start(env.host, `${noun}/${serviceId}`, { serviceId }, owner));
  }

  send(one: One, event: Event | CommonEvent): void {
    if (this.#all.get(one.serviceId) === one) this.#actors.get(one)?.actor.send(event);
  }

  touch(one: One): void {
    this.#touched.add(one);
  }

  /** Notifies it now, not at the end of the commit. */
  touchNow(one: One): void {
    this.send(one, this.#options.touched);
  }

  /** To be called when its chart has ended, or ends with the event just sent. */
  forget(one: One): void {
    const actor = this.#actors.get(one);
    this.#all.delete(one.serviceId);
    this.#actors.delete(one);
    this.#touched.delete(one);
    this.#options.env.clock.soon(() => actor?.stop());
  }

  /**
   * O4. `taskOf`: the task that a step creates. `onMissing`: called before the actor is notified when not everything happened.
   */
  writeSteps<Step extends DesireStep | CreateStep>(
    one: One,
    { isPartial, steps }: { readonly steps: readonly Step[]; readonly isPartial: boolean },
    taskOf: (step: Exclude<Step, DesireStep>, id: string) => Task,
    onMissing?: () => void,
  ): void {
    const operationOf = (step: Step): Operation => {
      if (isDesire(step)) return desire(step.task, step.state);
      const id = newId(this.#random);
      one.creating.add(id);
      const task = taskOf(step as Exclude<Step, DesireStep>, id);
      return Operation.create({ create: StoreObject.create({ task }) });
    };
    this.#options.writer.writeSteps(steps, operationOf, () => {
      const isAllThere = !isPartial && one.creating.size === 0;
      one.creating.clear();
      if (!isAllThere) {
        onMissing?.();
        this.touchNow(one);
      }
      this.send(one, { type: "decision.written" });
    });
  }

  commitEnded(): void {
    if (this.#touched.size === 0) return;
    const told = [...this.#touched];
    this.#touched.clear();
    for (const one of told) this.touchNow(one);
  }

  stop(): void {
    for (const actor of this.#actors.values()) actor.stop();
    this.#all.clear();
    this.#actors.clear();
  }
}

function isDesire(step: DesireStep | CreateStep): step is DesireStep {
  return step.kind === "desire";
}
