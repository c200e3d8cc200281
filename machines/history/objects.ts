/** The kinds of objects that have a history, and how a request selects one. */
import { taskName } from "../list-filters.ts";
import type {
  Cluster,
  Config,
  Manager,
  Network,
  Node,
  Rollout,
  Secret,
  Service,
  Task,
  Volume,
} from "../../proto/gen/messages.ts";

export interface ToldObjects {
  readonly node: Node;
  readonly service: Service;
  readonly network: Network;
  readonly task: Task;
  readonly cluster: Cluster;
  readonly secret: Secret;
  readonly config: Config;
  readonly volume: Volume;
}
export type ToldKind = keyof ToldObjects;

export const toldKinds: readonly ToldKind[] = [
  "node",
  "service",
  "network",
  "task",
  "cluster",
  "secret",
  "config",
  "volume",
];

/** Objects whose changes follow from those of others. */
interface OtherObjects {
  readonly rollout: Rollout;
  readonly manager: Manager;
}

type AllObjects = ToldObjects & OtherObjects;

/** A change in the store; changes of other tables are ignored. */
export type StoreChange =
  | {
      readonly [Name in keyof AllObjects]: {
        readonly table: Name;
        readonly action: "create" | "update" | "remove";
        readonly object: AllObjects[Name];
        readonly old: AllObjects[Name] | null;
      };
    }[keyof AllObjects]
  | { readonly table: "session" | "resource" | "extension" | "user" | "format" };

export function nameOf<Kind extends ToldKind>(kind: Kind, object: ToldObjects[Kind]): string {
  switch (kind) {
    case "node":
      return (object as Node).description?.hostname ?? "";
    case "task":
      return taskName(object as Task);
    default:
      return (object as Service).spec?.annotations?.name ?? "";
  }
}

/**
 * `one`: the object with that id. `named`: all objects that had that name, one after the other. `any`: no current object has
 * that id or name; then an id prefix is also accepted.
 */
export type Subject =
  | { readonly kind: "one"; readonly id: string }
  | { readonly kind: "named"; readonly name: string }
  | { readonly kind: "any"; readonly text: string };

/** A slot also names its tasks: `web.2`. */
function hasName(kind: ToldKind, name: string, text: string): boolean {
  if (kind === "task") return name === text || (/.\.[^.]+$/.test(text) && name.startsWith(`${text}.`));
  return name.toLowerCase() === text.toLowerCase();
}

export function isMeant(subject: Subject, kind: ToldKind, id: string, name: string): boolean {
  switch (subject.kind) {
    case "one":
      return id === subject.id;
    case "named":
      return hasName(kind, name, subject.name);
    case "any":
      return id.startsWith(subject.text) || hasName(kind, name, subject.text);
  }
}

/** The selected object, based on current objects; `ambiguous` if several ids have that prefix. */
export function subjectOf(
  kind: ToldKind,
  text: string,
  present: Iterable<ToldObjects[ToldKind]>,
): Subject | "ambiguous" {
  let named = false;
  const prefixed: string[] = [];
  for (const object of present) {
    if (object.id === text) return { kind: "one", id: text };
    named ||= hasName(kind, nameOf(kind, object), text);
    if (object.id.startsWith(text)) prefixed.push(object.id);
  }
  if (named) return { kind: "named", name: text };
  const [only] = prefixed;
  if (only === undefined) return { kind: "any", text };
  return prefixed.length === 1 ? { kind: "one", id: only } : "ambiguous";
}
