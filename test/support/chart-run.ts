/**
 * A chart alone: XState's pure transitions, on a clock that only `advance` and `elapse` move. Effects are data, whatever their
 * names: nothing is provided and nothing happens, so a test names only those that it asserts.
 */
import {
  initialTransition,
  transition,
  type AnyMachineSnapshot,
  type AnyStateMachine,
  type EventFromLogic,
  type InputFrom,
  type SnapshotFrom,
  type StateValue,
} from "xstate";
import { assert } from "../../lib/assert.ts";

export interface Effect {
  readonly type: string;
  readonly params?: unknown;
}

interface Step {
  readonly at: number;
  /** Null for the start. */
  readonly event: { readonly type: string } | null;
  readonly before: StateValue | undefined;
  readonly after: StateValue;
  /** With XState's own: `xstate.raise` arms a timer, `xstate.cancel` disarms one. */
  readonly actions: readonly Effect[];
}

/** An event, or the name of a delay that ends. */
type Happening<Machine extends AnyStateMachine> = EventFromLogic<Machine> | string;

/** `reconnectGrace` for `xstate.after.reconnectGrace.session.serving.disconnected`; other types unchanged. */
export function timerName(type: string): string {
  return /^xstate\.after\.([^.]+)/.exec(type)?.[1] ?? type;
}

/** The answer to an effect, and its delay. */
type Answer = (params: never) => { readonly afterMs: number; readonly event: { readonly type: string } };

export class ChartRun<Machine extends AnyStateMachine> {
  readonly #machine: Machine;
  readonly #timers = new Map<string, { readonly due: number; readonly event: { readonly type: string } }>();
  readonly #steps: Step[] = [];
  readonly #answers = new Map<string, Answer>();
  #snapshot: AnyMachineSnapshot;
  #taken = 0;
  #now = 0;

  constructor(machine: Machine, input?: InputFrom<Machine>) {
    this.#machine = machine;
    const [first, actions] = initialTransition(machine, input as never);
    this.#snapshot = first as AnyMachineSnapshot;
    this.#note(null, undefined, actions as readonly Effect[]);
  }

  get snapshot(): SnapshotFrom<Machine> {
    return this.#snapshot as SnapshotFrom<Machine>;
  }
  /** Such as `leading:idle`, and `rounds:full,proposals:some` of a parallel chart. */
  get state(): string {
    return JSON.stringify(this.#snapshot.value).replaceAll(/["{}]/g, "");
  }
  /** Milliseconds since the start. */
  get now(): number {
    return this.#now;
  }
  get steps(): readonly Step[] {
    return this.#steps;
  }

  /** The last step's own effects. */
  get effects(): readonly Effect[] {
    return ownOf(this.#steps.at(-1)?.actions ?? []);
  }
  get names(): readonly string[] {
    return this.effects.map(({ type }) => type);
  }
  /** Delays of the timers that the last step armed. */
  get delays(): readonly number[] {
    const raised = (this.#steps.at(-1)?.actions ?? []).filter(({ type }) => type === "xstate.raise");
    return raised.map(({ params }) => (params as { readonly delay: number }).delay);
  }
  /** The params of the last step's first effect of that name; undefined without one. */
  paramsOf(name: string): unknown {
    return this.effects.find(({ type }) => type === name)?.params;
  }
  /** Own effects of all steps. */
  all(): readonly Effect[] {
    return this.#steps.flatMap(({ actions }) => ownOf(actions));
  }
  /** Own effects since the last call. */
  take(): readonly Effect[] {
    const taken = this.#steps.slice(this.#taken).flatMap(({ actions }) => ownOf(actions));
    this.#taken = this.#steps.length;
    return taken;
  }

  /** From now on the world answers that effect, each time. */
  answer<Params>(
    effect: string,
    answer: (params: Params) => { readonly afterMs: number; readonly event: EventFromLogic<Machine> },
  ): this {
    this.#answers.set(effect, answer);
    return this;
  }

  /** A name of a delay ends that one now. */
  send(...happenings: readonly Happening<Machine>[]): this {
    for (const each of happenings) {
      if (typeof each === "string") this.#elapse(each);
      else this.#step(each as { readonly type: string });
    }
    return this;
  }

  advance(ms: number): this {
    const end = this.#now + ms;
    for (;;) {
      const [id, timer] = [...this.#timers].reduce((a, b) => (b[1].due < a[1].due ? b : a), [
        "",
        { due: Infinity },
      ] as never);
      if (timer.due > end) break;
      this.#fire(id);
    }
    this.#now = end;
    return this;
  }

  /** The process stands still, so that its timers are overdue. */
  stall(ms: number): void {
    this.#now += ms;
  }

  #elapse(delay: string): void {
    const id = [...this.#timers.keys()].find((each) => timerName(each) === delay);
    assert(id !== undefined, `${delay} runs in ${this.state}`);
    this.#fire(id);
  }

  #fire(id: string): void {
    const timer = this.#timers.get(id);
    assert(timer !== undefined, `${id} runs`);
    this.#timers.delete(id);
    this.#now = Math.max(this.#now, timer.due);
    this.#step(timer.event);
  }

  #step(event: { readonly type: string }): void {
    // An actor that has stopped gets no events.
    if (this.#snapshot.status !== "active") return;
    const before = this.#snapshot.value;
    const [next, actions] = transition(this.#machine, this.#snapshot as never, event as never);
    this.#snapshot = next as AnyMachineSnapshot;
    this.#note(event, before, actions as readonly Effect[]);
  }

  #note(event: Step["event"], before: Step["before"], actions: readonly Effect[]): void {
    const told = actions.filter((action) => this.#follow(action));
    this.#steps.push({ at: this.#now, event, before, after: this.#snapshot.value, actions: told });
  }

  /** False for a cancelled timer that does not run: a state that its own timer ended cancels that timer, too. */
  #follow({ type, params }: Effect): boolean {
    const answer = this.#answers.get(type)?.(params as never);
    if (answer !== undefined)
      this.#timers.set(`answer ${this.#steps.length} ${type}`, {
        due: this.#now + answer.afterMs,
        event: answer.event,
      });
    if (type === "xstate.cancel") return this.#timers.delete((params as { readonly sendId: string }).sendId);
    if (type !== "xstate.raise") return true;
    const { id, delay, event } = params as { id: string; delay: number; event: { type: string } };
    this.#timers.delete(id);
    this.#timers.set(id, { due: this.#now + delay, event });
    return true;
  }
}

function ownOf(actions: readonly Effect[]): readonly Effect[] {
  return actions
    .filter(({ type }) => !type.startsWith("xstate."))
    .map(({ type, params }) => (params === undefined ? { type } : { type, params }));
}
