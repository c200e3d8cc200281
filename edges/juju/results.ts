/**
 * Results of requests, written once for both generations of clients: keys are in kebab-case, and the encoder converts them to
 * the request's shape (`charm-url` → `CharmURL`).
 *
 *  - A key that begins with a capital letter is unchanged in both shapes (`NotifyWatcherId`).
 *  - `keyed` marks maps whose keys are data (application names, machine ids, annotations).
 *  - `verbatim` marks parts that are the same in both shapes, whatever their keys.
 */

export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json | undefined }
  | Keyed
  | Verbatim
  | Encoded;

/** A map whose keys are data; its values are converted to the request's shape. */
class Keyed {
  readonly entries: { readonly [key: string]: Json | undefined };
  constructor(entries: { readonly [key: string]: Json | undefined }) {
    this.entries = entries;
  }
  toJSON(): unknown {
    return this.entries;
  }
}

/** A part that is written unchanged. */
class Verbatim {
  readonly value: Json;
  constructor(value: Json) {
    this.value = value;
  }
  toJSON(): unknown {
    return this.value;
  }
}

/** A whole result, already encoded in the shape of its request. */
export class Encoded {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  toJSON(): unknown {
    return JSON.parse(this.text);
  }
}

export function keyed(
  entries: Iterable<readonly [string, Json]> | { readonly [key: string]: Json | undefined },
): Keyed {
  return new Keyed(Symbol.iterator in entries ? Object.fromEntries(entries) : entries);
}

export function verbatim(value: Json): Verbatim {
  return new Verbatim(value);
}

/** Parts of keys that the old shape capitalizes. */
const acronyms: ReadonlySet<string> = new Set(["url", "dns", "uuid"]);
/** Keys come from this program, so there are few: a look-up is cheaper than a conversion. */
const capitalized = new Map<string, string>();

/** `environ-tag` → `EnvironTag`, `charm-url` → `CharmURL`. */
function camelCase(key: string): string {
  let known = capitalized.get(key);
  if (known === undefined) {
    known = key
      .split("-")
      .map((part) => (acronyms.has(part) ? part.toUpperCase() : part.charAt(0).toUpperCase() + part.slice(1)))
      .join("");
    capitalized.set(key, known);
  }
  return known;
}

/** The value in the old shape. */
export function camelCased(value: Json): unknown {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return (value as readonly Json[]).map(camelCased);
  if (value instanceof Verbatim) return value.value;
  if (value instanceof Encoded) return value.toJSON();
  const isKeyed = value instanceof Keyed;
  const entries = isKeyed ? value.entries : (value as { readonly [key: string]: Json | undefined });
  // Without a prototype, so that client-chosen names cannot reach one.
  const written = Object.create(null) as Record<string, unknown>;
  for (const [key, each] of Object.entries(entries)) {
    if (each !== undefined) written[isKeyed ? key : camelCase(key)] = camelCased(each);
  }
  return written;
}
