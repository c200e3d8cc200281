/** What a history can be told of, and which of it is the subject. */
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

/** A change as the store tells it; those of other tables are passed over. */
export type StoreChange =
  | {
      readonly [Name in keyof AllObjects]: {
        readonly table: Name;
        readonly action: "create" | "update" | "remove";
        readonly object: AllObjects[Name];
        readonly old: AllObjects[Name] | null;
      };
    }[keyof AllObjects]
  | { readonly table: "session" | "resource" | "extension" | "user" };

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
 * `one`: the object with that id. `named`: whatever has that name at the time, one after the other. `any`: what is known
 * of today has neither that id nor that name: then also an id that begins so.
 */
export type Subject =
  | { readonly kind: "one"; readonly id: string }
  | { readonly kind: "named"; readonly name: string }
  | { readonly kind: "any"; readonly text: string };

/** A task is also meant by its slot: `web.2`. */
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

/** What is meant, as far as the present objects tell; `ambiguous` when several ids begin so. */
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
