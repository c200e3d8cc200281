/**
 * A plugin's schema, compiled: names resolved, types parsed, literals evaluated (reference §3.1-3.3). Compiling finds an
 * invalid
 * schema, which is the plugin's fault, before anyone writes a configuration for it.
 */
import type { Spec } from "../../proto/gen/nomad.ts";
import { evaluate } from "./expression.ts";
import { parseType } from "./type-expression.ts";
import type { Type, Value } from "./value.ts";

export type Schema =
  | { readonly kind: "object"; readonly fields: ReadonlyMap<string, Schema> }
  | { readonly kind: "array"; readonly items: readonly Schema[] }
  | { readonly kind: "attribute"; readonly name: string; readonly type: Type; readonly isRequired: boolean }
  | { readonly kind: "block"; readonly name: string; readonly isRequired: boolean; readonly nested: Schema }
  | { readonly kind: "attributes"; readonly name: string; readonly type: Type; readonly isRequired: boolean }
  | {
      readonly kind: "blocks";
      readonly name: string;
      /** 0 = unlimited. */
      readonly min: number;
      readonly max: number;
      readonly isSet: boolean;
      readonly nested: Schema;
    }
  | { readonly kind: "labelled"; readonly name: string; readonly labels: readonly string[]; readonly nested: Schema }
  | { readonly kind: "default"; readonly primary: Schema; readonly otherwise: Schema }
  | { readonly kind: "literal"; readonly value: Value };

export class SchemaError extends Error {
  override readonly name = "SchemaError";
}

const depthMax = 64;

/** Throws SchemaError with the path of the fault. */
export function compileSchema(spec: Spec): Schema {
  return compile(spec, "", "", 0);
}

function fault(where: string, message: string): never {
  throw new SchemaError(`the plugin's schema is wrong${where === "" ? "" : ` at ${where}`}: ${message}`);
}

function inner(spec: Spec | null, where: string, depth: number): Schema {
  if (spec === null) return fault(where, "block has no nested schema");
  return compile(spec, "", where, depth + 1);
}

/** `implied`: the key in the enclosing object, which names a spec without a name. */
function compile(spec: Spec, implied: string, where: string, depth: number): Schema {
  if (depth > depthMax) return fault(where, "nested too deeply");
  const named = (name: string, kind: string): string => name || implied || fault(where, `Missing name in ${kind} spec`);
  const typed = (text: string): Type => {
    try {
      return parseType(text);
    } catch (error) {
      return fault(where, error instanceof Error ? error.message : String(error));
    }
  };
  if (spec.object !== null) {
    const fields = new Map<string, Schema>();
    for (const [key, field] of Object.entries(spec.object.attributes))
      fields.set(key, compile(field, key, where === "" ? key : `${where}.${key}`, depth + 1));
    return { kind: "object", fields };
  }
  if (spec.array !== null)
    return {
      kind: "array",
      items: spec.array.values.map((item, at) => compile(item, "", `${where}[${at}]`, depth + 1)),
    };
  if (spec.Attr !== null) {
    const { name, type, required } = spec.Attr;
    return { kind: "attribute", name: named(name, "attribute"), type: typed(type), isRequired: required };
  }
  if (spec.blockValue !== null) {
    const { name, required, nested } = spec.blockValue;
    return { kind: "block", name: name || implied, isRequired: required, nested: inner(nested, where, depth) };
  }
  if (spec.blockAttrs !== null) {
    const { name, type, required } = spec.blockAttrs;
    return { kind: "attributes", name: named(name, "block_attrs"), type: typed(type), isRequired: required };
  }
  const list = spec.blockList ?? spec.blockSet;
  if (list !== null) {
    const isSet = spec.blockSet !== null;
    const { name, minItems: min, maxItems: max, nested } = list;
    return {
      kind: "blocks",
      name: named(name, isSet ? "block_set" : "block_list"),
      min,
      max,
      isSet,
      nested: inner(nested, where, depth),
    };
  }
  if (spec.blockMap !== null) {
    const { name, labels, nested } = spec.blockMap;
    if (labels.length === 0) return fault(where, "block_map has no labels");
    return { kind: "labelled", name: named(name, "block_map"), labels, nested: inner(nested, where, depth) };
  }
  if (spec.default !== null) {
    const { primary, default: otherwise } = spec.default;
    if (primary === null || otherwise === null) return fault(where, "default needs a primary and a default spec");
    return {
      kind: "default",
      primary: compile(primary, "", where, depth + 1),
      otherwise: compile(otherwise, "", where, depth + 1),
    };
  }
  if (spec.literal !== null) {
    try {
      return { kind: "literal", value: evaluate(spec.literal.value) };
    } catch (error) {
      return fault(
        where,
        `the literal ${spec.literal.value}: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }
  return fault(where, "Invalid spec block");
}

/** The names that a body may contain: those of every schema that reads from this body. */
export function namesOf(schema: Schema): ReadonlySet<string> {
  const names = new Set<string>();
  const visit = (at: Schema): void => {
    switch (at.kind) {
      case "object":
        for (const field of at.fields.values()) visit(field);
        return;
      case "array":
        at.items.forEach(visit);
        return;
      case "default":
        visit(at.primary);
        visit(at.otherwise);
        return;
      case "literal":
        return;
      default:
        names.add(at.name);
    }
  };
  visit(schema);
  return names;
}
