/**
 * News of actors in the protocol of Stately's inspector, as `@statelyai/inspect` 0.7 sends it: an actor is registered with its chart,
 * then each step is an event and a snapshot. Each process is an actor, too: the parent of its actors.
 *
 * The protocol has no field for the transitions taken; the inspector derives them from the states.
 */
import type { Actor, Process } from "../../proto/feed/actors.ts";
import { ActorStatus, type ActorStep } from "../../proto/gen/messages.ts";

const version = "0.7.2";

interface StatelySnapshot {
  readonly status: "active" | "done" | "error" | "stopped";
  readonly value?: unknown;
  readonly context?: unknown;
}

interface Addressed {
  readonly _version: string;
  readonly id: null;
  /** Milliseconds since the epoch. */
  readonly createdAt: string;
  readonly rootId: string;
  readonly sessionId: string;
}

export type StatelyMessage = Addressed &
  (
    | {
        readonly type: "@xstate.actor";
        readonly name: string;
        readonly parentId?: string;
        /** JSON of the config that `createMachine` takes. */
        readonly definition?: string;
        readonly snapshot: StatelySnapshot;
      }
    | { readonly type: "@xstate.event"; readonly event: StatelyEvent; readonly sourceId?: string }
    | { readonly type: "@xstate.snapshot"; readonly event: StatelyEvent; readonly snapshot: StatelySnapshot }
  );

interface StatelyEvent {
  readonly type: string;
}

export type StatelyNews =
  /** Its whole state. */
  | { readonly kind: "actor"; readonly process: Process; readonly actor: Actor }
  | { readonly kind: "step"; readonly process: Process; readonly step: ActorStep }
  | { readonly kind: "ended"; readonly process: Process; readonly actor: string };

const statuses: Readonly<Record<number, StatelySnapshot["status"]>> = {
  [ActorStatus.ACTOR_ACTIVE]: "active",
  [ActorStatus.ACTOR_DONE]: "done",
  [ActorStatus.ACTOR_FAILED]: "error",
  [ActorStatus.ACTOR_STOPPED]: "stopped",
};

interface Branch {
  readonly [key: string]: Branch;
}

function valueIn(branch: Branch): unknown {
  const entries = Object.entries(branch);
  const [[key, inner] = ["", {}]] = entries;
  if (entries.length === 1 && Object.keys(inner).length === 0) return key;
  return Object.fromEntries(
    entries.map(([region, below]) => [region, Object.keys(below).length === 0 ? {} : valueIn(below)]),
  );
}

/** XState's state value of active atomic states: `link.up` and `work.idle` are `{ link: "up", work: "idle" }`. */
export function valueOf(states: readonly string[]): unknown {
  const tree: Record<string, Branch> = {};
  for (const path of states) {
    let branch: Record<string, Branch> = tree;
    for (const key of path.split(".")) branch = (branch[key] ??= {}) as Record<string, Branch>;
  }
  return states.length === 0 ? {} : valueIn(tree);
}

const parsed = (json: string): object => (json === "" ? {} : (JSON.parse(json) as object));

export class StatelyMessages {
  readonly #definitionOf: (machine: string) => string | undefined;
  /** Contexts of registered actors, by session id; a process has none. */
  readonly #registered = new Map<string, string>();

  /** `definitionOf`: the JSON config of a machine; undefined for one that this command does not know. */
  constructor(definitionOf: (machine: string) => string | undefined) {
    this.#definitionOf = definitionOf;
  }

  *of(news: StatelyNews, nowMs: number): Iterable<StatelyMessage> {
    const { process } = news;
    const addressed = (actor: string, atMs = nowMs): Addressed => ({
      _version: version,
      id: null,
      createdAt: String(atMs),
      rootId: process.id,
      sessionId: actor === "" ? process.id : `${process.id}/${actor}`,
    });
    if (!this.#registered.has(process.id)) {
      this.#registered.set(process.id, "");
      const name = process.hostname === "" ? process.id : `${process.hostname} (${process.id})`;
      yield { ...addressed(""), type: "@xstate.actor", name, snapshot: { status: "active" } };
    }
    switch (news.kind) {
      case "actor": {
        const { id, machine, states, status, context, event } = news.actor;
        const snapshot = { status: statuses[status] ?? "active", value: valueOf(states), context: parsed(context) };
        const to = addressed(id);
        const isKnown = this.#registered.has(to.sessionId);
        this.#registered.set(to.sessionId, context);
        if (isKnown) {
          yield { ...to, type: "@xstate.snapshot", event: { type: event === "" ? "xstate.init" : event }, snapshot };
          return;
        }
        yield this.#registration(to, id, machine, snapshot);
        return;
      }
      case "step": {
        const { actor, machine, atMs, states, status, source } = news.step;
        const to = addressed(actor, atMs);
        const known = this.#registered.get(to.sessionId);
        const context = news.step.context === "" ? (known ?? "") : news.step.context;
        this.#registered.set(to.sessionId, context);
        const event = { ...parsed(news.step.fields), type: news.step.event };
        const snapshot = { status: statuses[status] ?? "active", value: valueOf(states), context: parsed(context) };
        // A step of an actor that has just started.
        if (known === undefined) yield this.#registration(to, actor, machine, snapshot);
        const sourceId = source === "" ? {} : { sourceId: addressed(source).sessionId };
        yield { ...to, type: "@xstate.event", event, ...sourceId };
        yield { ...to, type: "@xstate.snapshot", event, snapshot };
        return;
      }
      case "ended": {
        const to = addressed(news.actor);
        this.#registered.delete(to.sessionId);
        yield { ...to, type: "@xstate.snapshot", event: { type: "xstate.stop" }, snapshot: { status: "stopped" } };
      }
    }
  }

  /** Registers the actor again with its next news, because a message about it was not sent. */
  forget(process: string, actor: string): void {
    this.#registered.delete(`${process}/${actor}`);
  }

  #registration(to: Addressed, name: string, machine: string, snapshot: StatelySnapshot): StatelyMessage {
    const definition = this.#definitionOf(machine);
    return {
      ...to,
      type: "@xstate.actor",
      name,
      parentId: to.rootId,
      ...(definition === undefined ? {} : { definition }),
      snapshot,
    };
  }
}
