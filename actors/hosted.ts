/**
 * Machines of which a process runs many instances: the effects are provided once for all actors, and find their owner by the
 * calling actor. Providing them per actor would rebuild the whole chart each time: 32 KiB and 2.3 ms per actor instead of 6 KiB
 * and 0.3 ms (measured with `agentSessionMachine`).
 */
import type { AnyStateMachine, InputFrom } from "xstate";
import { assert } from "../lib/assert.ts";
import type { Draw } from "../lib/backoff.ts";
import type { Host, HostedActor } from "../runtime/host.ts";

/** Effects by name; each gets the action's params, with its owner's `self` as `this`. */
export type Effects = Readonly<Record<string, (this: never, params: never) => void>>;

export interface Owner {
  readonly effects: Effects;
  /**
   * `this` of the effects, when owners share one set of functions: own functions would cost an idle node's session 0.7 kB more.
   */
  readonly self?: object;
  /** For randomized delays, whose bounds the chart gives; absent when the machine has none. */
  readonly draw?: Draw;
}

export interface HostedMachine<Machine extends AnyStateMachine> {
  start(host: Host, id: string, input: InputFrom<Machine>, owner: Owner): HostedActor<Machine>;
}

interface ActionArgs {
  readonly self: object;
}

/** `effects`: names of all effects of the machine except `reportUnexpected`. `drawn`: its randomized delays. */
export function hosted<Machine extends AnyStateMachine>(
  machine: Machine,
  effects: readonly string[],
  drawn: readonly string[] = [],
): HostedMachine<Machine> {
  const owners = new WeakMap<object, Owner>();
  // An actor's first effects run before `host.start` has returned it.
  let starting: Owner | null = null;
  const ownerOf = (self: object): Owner => {
    let owner = owners.get(self);
    if (owner === undefined) {
      assert(starting !== null, "an actor that acts has an owner");
      owners.set(self, (owner = starting));
    }
    return owner;
  };
  const actions = Object.fromEntries(
    effects.map((name) => [
      name,
      ({ self }: ActionArgs, params: never) => {
        const owner = ownerOf(self);
        owner.effects[name]?.call((owner.self ?? owner.effects) as never, params);
      },
    ]),
  );
  const declared = machine.implementations.delays as Record<string, number | ((args: ActionArgs) => number)>;
  const delays = Object.fromEntries(
    drawn.map((name) => {
      const bound = declared[name];
      return [
        name,
        (args: ActionArgs) => {
          const boundMs = typeof bound === "function" ? bound(args) : (bound ?? 0);
          return ownerOf(args.self).draw?.(boundMs) ?? boundMs;
        },
      ];
    }),
  );
  const provided = machine.provide({ actions, delays } as never) as Machine;
  return {
    start(host, id, input, owner) {
      const outer = starting;
      starting = owner;
      try {
        const actor = host.start(provided, id, input);
        owners.set(actor.actor, owner);
        return actor;
      } finally {
        starting = outer;
      }
    },
  };
}
