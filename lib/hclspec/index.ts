/** Encodes a plugin's configuration: validates it against the plugin's schema and returns the bytes that the plugin reads. */
import type { Spec } from "../../proto/gen/nomad.ts";
import { Decoder, type ConfigInput, type Problem } from "./decode.ts";
import { encode } from "./encode.ts";
import { evaluate, evaluateTemplate, type Scope } from "./expression.ts";
import { SchemaError, compileSchema } from "./schema.ts";
import { textValue, type Value } from "./value.ts";

export { MsgpackError, unpack, type Unpacked } from "./msgpack.ts";
export type { ConfigInput, Problem } from "./decode.ts";
export type { Scope } from "./expression.ts";
export { evaluate, evaluateTemplate };

export type EncodeOutcome =
  | { readonly kind: "encoded"; readonly bytes: Uint8Array }
  /** The mistakes that the user must fix; never empty. */
  | { readonly kind: "invalid"; readonly problems: readonly Problem[] }
  /** The plugin's schema is wrong. */
  | { readonly kind: "bad-schema"; readonly reason: string };

/**
 * Checks a configuration against a schema, and encodes it as Nomad does. `scope`: variables for `${…}`; none by default. Never
 * throws.
 */
export function encodeConfig(spec: Spec, config: ConfigInput, scope?: Scope): EncodeOutcome {
  let schema;
  try {
    schema = compileSchema(spec);
  } catch (error) {
    if (error instanceof SchemaError) return { kind: "bad-schema", reason: error.message };
    throw error;
  }
  const decoder = new Decoder(scope);
  const value = decoder.body(schema, config, "");
  if (decoder.problems.length > 0) return { kind: "invalid", problems: decoder.problems };
  return { kind: "encoded", bytes: encode(value) };
}

/** A problem as one sentence, for people. */
export function problemText({ path, message }: Problem): string {
  return path === "" ? message : `${path}: ${message}`;
}

/**
 * The variables of a task's configuration: its environment by name, names with dots as nested objects, and all of it as
 * `env["NAME"]`.
 */
export function environmentScope(env: Readonly<Record<string, string>>): Scope {
  const tree = new Map<string, Tree>();
  for (const [name, text] of Object.entries(env)) plant(tree, name.split("."), text);
  const all = new Map(Object.entries(env).map(([name, text]) => [name, textValue(text)]));
  return new Map([...tree].map(([name, below]) => [name, grown(below)] as const)).set("env", {
    kind: "object",
    entries: all,
  });
}

type Tree = string | Map<string, Tree>;

function plant(tree: Map<string, Tree>, [name = "", ...rest]: readonly string[], text: string): void {
  if (rest.length === 0) {
    // `a` and `a.b` conflict: `a` is dropped here, and remains available as env["a"].
    if (!tree.has(name)) tree.set(name, text);
    return;
  }
  const below = tree.get(name);
  const branch = below instanceof Map ? below : new Map<string, Tree>();
  tree.set(name, branch);
  plant(branch, rest, text);
}

function grown(tree: Tree): Value {
  if (typeof tree === "string") return textValue(tree);
  return { kind: "object", entries: new Map([...tree].map(([name, below]) => [name, grown(below)])) };
}
