/**
 * The waits of the charts' states, as their `meta` says them: read by `muster why`, and by the pages of docs/machines/.
 *
 * A text may have placeholders such as `{the node}`: without that fact it reads as the words between the braces.
 */
import { assert } from "../lib/assert.ts";
import type { AnyStateMachine, StateNode, StateValueFrom } from "xstate";

/** `meta` of each state in which an actor rests. */
export interface WaitMeta {
  /** The thing or event that the actor waits for, as a noun phrase; starts with `nothing` if all is well. */
  readonly waitingFor: string;
  /**
   * Noun phrases for the events that end or renew the wait. A key is the type of an event that the state, or one around it, handles
   * (`call.*`: several), or the name of a delay of the state.
   */
  readonly wokenBy: Readonly<Record<string, string>>;
}

type WaitFacts = Readonly<Record<string, string>>;

export interface Wait {
  readonly waitingFor: string;
  readonly wokenBy: string;
}

const ended: Wait = { waitingFor: "nothing: it has ended", wokenBy: "" };
const passing: Wait = { waitingFor: "nothing: it is about to move on", wokenBy: "" };

/** A state by its keys, joined by dots, such as `serving.disconnected`. */
export type StatePath<Machine extends AnyStateMachine> = PathIn<StateValueFrom<Machine>>;
type PathIn<Value> = Value extends string
  ? Value
  : { [Key in keyof Value & string]-?: `${Key}.${PathIn<NonNullable<Value[Key]>>}` }[keyof Value & string];

/**
 * The wait of a state, in words with the facts that are known. An actor may be asked at any moment, also in a state in which it
 * does not rest.
 */
export function waitOf<Machine extends AnyStateMachine>(
  machine: Machine,
  state: StatePath<Machine>,
  facts: WaitFacts = {},
): Wait {
  let node: AnyStateNode | undefined = machine.root as unknown as AnyStateNode;
  for (const key of state.split(".")) node = node?.states[key];
  assert(node !== undefined, `${machine.id} has a state ${state}`);
  const wait = metaOf(node);
  if (wait === null) return node.type === "final" ? ended : passing;
  return { waitingFor: filled(wait.waitingFor, facts), wokenBy: filled(wakersOf(wait), facts) };
}

/** The states that wait, by their keys joined by dots, in the order of the chart. */
export function* waitsOf(machine: AnyStateMachine): Iterable<readonly [state: string, meta: WaitMeta]> {
  function* waitsIn(node: AnyStateNode): Iterable<readonly [string, WaitMeta]> {
    const meta = metaOf(node);
    if (meta !== null) yield [node.path.join("."), meta];
    for (const child of Object.values<AnyStateNode>(node.states)) yield* waitsIn(child);
  }
  yield* waitsIn(machine.root as unknown as AnyStateNode);
}

type AnyStateNode = StateNode<never, never>;

function metaOf(node: AnyStateNode | undefined): WaitMeta | null {
  return (node?.meta as WaitMeta | undefined) ?? null;
}

/** Replaces the placeholders. */
export function filled(text: string, facts: WaitFacts = {}): string {
  return text.replaceAll(/\{([^}]+)\}/g, (_, name: string) => facts[name] ?? name);
}

/** Such as `a heartbeat, a Session call, or the next check`. */
function wakersOf({ wokenBy }: WaitMeta): string {
  const phrases = [...new Set(Object.values(wokenBy))];
  const last = phrases.pop() ?? "";
  return phrases.length === 0 ? last : `${phrases.join(", ")}, or ${last}`;
}
