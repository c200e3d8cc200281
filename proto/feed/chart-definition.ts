/** Statecharts as data: what the page and `muster inspect` draw. The set-up writes them to `ui/gen/charts.ts` for the page. */

export interface ChartDefinition {
  /** The machine's id, as in `ActorState.machine`. */
  readonly id: string;
  readonly summary: string;
  /** Labelled sentences of the machine's file, such as `S1: …`. */
  readonly invariants: readonly string[];
  readonly root: StateDefinition;
}

type StateType = "atomic" | "compound" | "parallel" | "final" | "history";

export interface StateDefinition {
  /** Keys joined by dots; empty for the root. */
  readonly path: string;
  readonly key: string;
  readonly type: StateType;
  readonly description: string;
  readonly waitingFor: string;
  /** Events or delays, and what they are in words. */
  readonly wokenBy: Readonly<Record<string, string>>;
  /** Path of the initial state; empty if there is none. */
  readonly initial: string;
  readonly transitions: readonly TransitionDefinition[];
  readonly states: readonly StateDefinition[];
}

export interface TransitionDefinition {
  /** `state#event#index`, as in `ActorStep.transitions`; instead of an event's type `after DELAY` or `always`. */
  readonly id: string;
  /** The event's type; empty for a transition that is taken at once. */
  readonly event: string;
  /** The delay's name, or its milliseconds; empty if it waits for an event. */
  readonly delay: string;
  readonly guard: string;
  /** Paths; none: the state stays. */
  readonly targets: readonly string[];
  readonly actions: readonly string[];
}
