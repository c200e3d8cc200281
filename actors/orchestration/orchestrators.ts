/**
 * The orchestrators of one kind, one actor per service: collects what a commit touches and notifies each actor once, at its
 * end; writes their decisions; stops those whose service was removed.
 *
 * O4: a task created by a decision is recorded here by its id until the store has it, so that its own arrival is not a change;
 *     parts of a decision that did not happen are decided again.
 */
import { desired } from "../../machines/task-moves.ts";
import type { AnyStateMachine, EventFromLogic, InputFrom } from "xstate";
import { Operation, StoreObject, type Task, type TaskState } from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { Random } from "../../runtime/ports/index.ts";
import type { Environment } from "../environment.ts";
import type { Writer } from "./part.ts";
import { Reconciler, type OwnEffects, type RoundOf, type WithEffects } from "./reconciler.ts";

interface DesireStep {
  readonly kind: "desire";
  readonly task: Task;
  readonly state: TaskState;
}

interface CreateStep {
  readonly kind: "create";
}

/** The actor of one service; kinds of them extend it. */
export interface Served {
  readonly serviceId: string;
}

/** The orchestrator of one service. */
export interface Orchestrator extends Served {
  /** Ids of tasks created by a decision that the store does not have yet. */
  readonly creating: Set<string>;
}

type Options<Machine extends AnyStateMachine, One> = WithEffects<
  OwnEffects<Machine>,
  (one: One) => OwnEffects<Machine>
> & {
  readonly env: Environment;
  /** Name of the actors and of their random source. */
  readonly noun: string;
  /** Its chart extends `reconciling`, and its input is `{ serviceId }`. */
  readonly machine: Machine;
  /** One round. */
  decide(one: One): RoundOf<Machine>;
};

/** One reconcile loop per service. */
export class Reconcilers<Machine extends AnyStateMachine, One extends Served> {
  readonly #options: Options<Machine, One>;
  readonly #all = new Map<string, One>();
  readonly #loops = new Map<One, Reconciler<Machine>>();
  /** To be notified at the end of the commit. */
  readonly #touched = new Set<One>();

  constructor(options: Options<Machine, One>) {
    this.#options = options;
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
    const { decide, effects, env, machine, noun } = this.#options;
    const { serviceId } = one;
    this.#all.set(serviceId, one);
    const loop = new Reconciler<Machine>(env, {
      machine,
      id: `${noun}/${serviceId}`,
      input: { serviceId } as InputFrom<Machine>,
      decide: () => decide(one),
      effects: effects?.(one) ?? {},
    } as never);
    this.#loops.set(one, loop);
  }

  send(one: One, event: EventFromLogic<Machine>): void {
    this.#loops.get(one)?.send(event);
  }

  touch(one: One): void {
    this.#touched.add(one);
    this.#loops.get(one)?.noteCause();
  }

  /** Notifies it now, not at the end of the commit. */
  touchNow(one: One): void {
    this.#loops.get(one)?.wake();
  }

  /**
   * To be called when its chart has ended, or ends with the event just sent, perhaps in an effect of its own. Its actor keeps
   * its id until the end of this turn; `gone` is called then, to start another for what happened meanwhile.
   */
  forget(one: One, gone?: () => void): void {
    this.#options.env.clock.soon(() => {
      const loop = this.#loops.get(one);
      if (loop === undefined) return;
      loop.stop();
      this.#all.delete(one.serviceId);
      this.#loops.delete(one);
      this.#touched.delete(one);
      gone?.();
    });
  }

  commitEnded(): void {
    if (this.#touched.size === 0) return;
    const told = [...this.#touched];
    this.#touched.clear();
    for (const one of told) this.touchNow(one);
  }

  stop(): void {
    for (const loop of this.#loops.values()) loop.stop();
    this.#all.clear();
    this.#loops.clear();
  }
}

export class Orchestrators<Machine extends AnyStateMachine, One extends Orchestrator> extends Reconcilers<
  Machine,
  One
> {
  readonly #writer: Writer;
  readonly #random: Random;

  constructor(options: Options<Machine, One> & { readonly writer: Writer }) {
    super(options);
    this.#writer = options.writer;
    this.#random = options.env.random.fork(options.noun);
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
      if (isDesire(step)) return desired(step.task, step.state);
      const id = newId(this.#random);
      one.creating.add(id);
      const task = taskOf(step as Exclude<Step, DesireStep>, id);
      return Operation.create({ create: StoreObject.create({ task }) });
    };
    this.#writer.writeSteps(steps, operationOf, () => {
      const isAllThere = !isPartial && one.creating.size === 0;
      one.creating.clear();
      if (!isAllThere) {
        onMissing?.();
        this.touchNow(one);
      }
      this.send(one, { type: "decision.written" } as EventFromLogic<Machine>);
    });
  }
}

function isDesire(step: DesireStep | CreateStep): step is DesireStep {
  return step.kind === "desire";
}
