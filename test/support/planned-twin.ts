/** Takes each step of a chart twice, as XState does and by plans (`runtime/steps/planned.ts`), and compares all that follows. */
import { deepStrictEqual } from "node:assert";
import type { AnyMachineSnapshot, AnyStateMachine } from "xstate";
import type { AnyNode } from "../../runtime/observation/transition-ids.ts";
import { plannedSteps } from "../../runtime/steps/planned.ts";

interface Action {
  readonly type: string;
  readonly info: { readonly context: unknown; readonly event: unknown };
  readonly params: unknown;
  readonly exec?: (info: unknown, params: unknown) => void;
}

/** Everything that one step has led to. */
interface Outcome {
  readonly snapshot: AnyMachineSnapshot | null;
  readonly actions: readonly Action[];
  /** Inspection events, timers that were set or cancelled, and errors. */
  readonly shown: readonly unknown[];
}

const idsOf = ({ _nodes }: AnyMachineSnapshot): readonly string[] =>
  (_nodes as unknown as readonly AnyNode[]).map(({ id }) => id);

const shownSnapshot = (snapshot: AnyMachineSnapshot): object => ({
  value: snapshot.value,
  nodes: idsOf(snapshot),
  context: snapshot.context,
  status: snapshot.status,
  output: snapshot.output as unknown,
  tags: [...snapshot.tags],
});

export class PlannedTwin {
  readonly #byXState: AnyStateMachine["transition"];
  readonly #planned: AnyStateMachine["transition"];
  readonly #self: object;

  /** `self`: the actor that its effects see. Throws for a chart that plans do not support. */
  constructor(machine: AnyStateMachine, self: object) {
    const planned = plannedSteps(machine);
    if (planned === null) throw new Error(`PS2: the chart ${machine.id} has features that plans do not support`);
    this.#byXState = machine.transition;
    this.#planned = planned;
    this.#self = self;
  }

  /** Throws an error of `assert` if the two ways differ. PS1 */
  compare(from: AnyMachineSnapshot, event: unknown): void {
    const [wanted, found] = [this.#byXState, this.#planned].map((transition) => this.#taken(transition, from, event));
    if (wanted === undefined || found === undefined) throw new Error("both ways were taken");
    deepStrictEqual(found.shown, wanted.shown);
    deepStrictEqual(found.actions.map(dataOf), wanted.actions.map(dataOf));
    deepStrictEqual(found.snapshot && shownSnapshot(found.snapshot), wanted.snapshot && shownSnapshot(wanted.snapshot));
    deepStrictEqual(Object.keys(found.snapshot ?? {}).toSorted(), Object.keys(wanted.snapshot ?? {}).toSorted());
    // A step that changes nothing leaves the snapshot itself.
    deepStrictEqual(found.snapshot === from, wanted.snapshot === from);
  }

  #taken(transition: AnyStateMachine["transition"], from: AnyMachineSnapshot, event: unknown): Outcome {
    const actions: Action[] = [];
    const shown: unknown[] = [];
    const scope = {
      self: this.#self,
      id: "",
      sessionId: "",
      system: {
        _sendInspectionEvent: (seen: {
          readonly type: string;
          readonly event: unknown;
          readonly snapshot: AnyMachineSnapshot;
          readonly _transitions: readonly { readonly source: { readonly id: string }; readonly eventType: string }[];
        }) =>
          void shown.push([
            seen.type,
            seen.event,
            shownSnapshot(seen.snapshot),
            seen._transitions.map(({ eventType, source }) => [source.id, eventType]),
          ]),
        scheduler: {
          schedule: (_source: unknown, _target: unknown, ...timer: readonly unknown[]) => void shown.push(timer),
          cancel: (_source: unknown, id: string) => void shown.push(["cancelled", id]),
        },
      },
      defer: (act: () => void) => act(),
      emit: () => undefined,
      stopChild: () => undefined,
      // XState's own actions act through the scope; effects do nothing here.
      actionExecutor: (action: Action) => {
        actions.push(action);
        if (action.type.startsWith("xstate.")) action.exec?.(action.info, action.params);
      },
    };
    try {
      const snapshot = transition(from as never, event as never, scope as never) as AnyMachineSnapshot;
      return { snapshot, actions, shown };
    } catch (error) {
      return { snapshot: null, actions, shown: [...shown, (error as Error).message.split(" This usually")[0]] };
    }
  }
}

function dataOf({ info, params, type }: Action): unknown {
  return [type, params, info.context, info.event];
}
