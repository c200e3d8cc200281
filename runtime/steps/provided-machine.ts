/**
 * Machines as hosts run them: with effects and randomized delays, which find their owner by the calling actor, and with planned
 * steps. Each is provided once for all actors of all hosts. Providing it per actor would rebuild the whole chart each time: 32 KiB
 * and 2.3 ms per actor instead of 6 KiB and 0.3 ms (measured with `agentSessionMachine`); and a simulation has a host per node.
 */
import type { AnyStateMachine } from "xstate";
import { assert } from "../../lib/assert.ts";
import { plannedSteps } from "./planned.ts";

/** An owner whose machine is not known. */
export interface AnyOwner {
  readonly effects: Readonly<Record<string, ((params: unknown, actor: unknown) => void) | undefined>>;
  readonly self?: unknown;
  readonly draw?: (boundMs: number) => number;
}

/** An actor as its machine sees it. */
export interface ActingActor {
  readonly owner: AnyOwner;
  /** The actor's state does not handle an event of this type. */
  reportUnexpected(event: string): void;
}

interface ActionArgs {
  readonly self: object;
}

interface Names {
  readonly effects: readonly string[];
  readonly drawnDelays: readonly string[];
}

/** The machine's effects and drawn delays. */
export const namesOf = (machine: AnyStateMachine): Names => machine.schemas as Names;

/** By XState's actor. */
export const actingActors = new WeakMap<object, ActingActor>();
const providedMachines = new WeakMap<AnyStateMachine, AnyStateMachine>();
/** A randomized delay of the initial state is drawn before its actor exists. */
let starting: AnyOwner | null = null;

/** Creates an actor that draws its first delays from this owner. */
export function ownedBy<Created>(owner: AnyOwner, create: () => Created): Created {
  starting = owner;
  try {
    return create();
  } finally {
    starting = null;
  }
}

export function providedMachine(machine: AnyStateMachine): AnyStateMachine {
  let provided = providedMachines.get(machine);
  if (provided === undefined) providedMachines.set(machine, (provided = provide(machine)));
  return provided;
}

function provide(machine: AnyStateMachine): AnyStateMachine {
  const names = namesOf(machine);
  const effects = names.effects.map((name) => [
    name,
    ({ self }: ActionArgs, params: unknown) => {
      const acting = actingOf(self);
      acting.owner.effects[name]?.call(acting.owner.self, params, acting);
    },
  ]);
  const declared = machine.implementations.delays as Record<string, number | ((args: ActionArgs) => number)>;
  const delays = names.drawnDelays.map((name) => {
    const bound = declared[name];
    return [
      name,
      (args: ActionArgs) => {
        const boundMs = typeof bound === "function" ? bound(args) : (bound ?? 0);
        const owner = actingActors.get(args.self)?.owner ?? starting;
        return owner?.draw?.(boundMs) ?? boundMs;
      },
    ];
  });
  const provided = machine.provide({
    actions: {
      ...Object.fromEntries(effects),
      reportUnexpected: ({ event, self }: ActionArgs & { readonly event: { readonly type: string } }) =>
        actingOf(self).reportUnexpected(event.type),
    },
    delays: Object.fromEntries(delays),
  } as never);
  provided.transition = plannedSteps(provided) ?? provided.transition;
  return provided;
}

function actingOf(self: object): ActingActor {
  const acting = actingActors.get(self);
  assert(acting !== undefined, "an actor that acts is hosted");
  return acting;
}
