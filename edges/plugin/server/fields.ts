/**
 * Declares the configuration of a driver written in TypeScript: an object of fields yields both the schema that the host checks
 * (hclspec) and the type that the driver receives.
 *
 *   const fields = { command: text({ required: true }), args: list("string"), env: map("string") };
 *   type Config = ConfigOf<typeof fields>;   // { command: string; args: readonly string[] | null; … }
 */
import {
  Attr,
  Block,
  BlockList,
  BlockMap,
  Default,
  Literal,
  Object as ObjectSpec,
  Spec,
} from "../../../proto/gen/nomad.ts";
import { unpack, type Unpacked } from "../../../lib/hclspec/msgpack.ts";

/** One field; `Type` is the type of the value that a driver receives. */
export interface Field<Type> {
  /** `name`: the field's key. */
  spec(name: string): Spec;
  readonly type?: Type;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;

export type ConfigOf<Of extends Fields> = {
  readonly [Name in keyof Of]: Of[Name] extends Field<infer Type> ? Type : never;
};

interface Primitives {
  readonly string: string;
  readonly number: number;
  readonly bool: boolean;
}

/** Without either, the value is null if unset. */
type Presence<Type> = { readonly required: true } | { readonly default: Type };

/** A JSON value as an HCL expression, with `${` and `%{` escaped. */
function literalOf(value: unknown): Spec {
  const text = JSON.stringify(value).replaceAll("${", "$${").replaceAll("%{", "%%{");
  return Spec.create({ literal: Literal.create({ value: text }) });
}

function attribute(type: string, presence?: Presence<unknown>): Field<never> {
  return {
    spec(name) {
      const isRequired = presence !== undefined && "required" in presence;
      const Attribute = Spec.create({ Attr: Attr.create({ name, type, required: isRequired }) });
      if (presence === undefined || isRequired) return Attribute;
      return Spec.create({ default: Default.create({ primary: Attribute, default: literalOf(presence.default) }) });
    },
  };
}

type Made<Type> = { (): Field<Type | null>; (presence: Presence<Type>): Field<Type> };

export const text: Made<string> = (presence?: Presence<string>) => attribute("string", presence);
export const number: Made<number> = (presence?: Presence<number>) => attribute("number", presence);
export const flag: Made<boolean> = (presence?: Presence<boolean>) => attribute("bool", presence);

/** A list of strings, numbers or booleans. */
export function list<Of extends keyof Primitives>(of: Of): Field<readonly Primitives[Of][] | null>;
export function list<Of extends keyof Primitives>(
  of: Of,
  presence: Presence<readonly Primitives[Of][]>,
): Field<readonly Primitives[Of][]>;
export function list(of: string, presence?: Presence<unknown>): Field<never> {
  return attribute(`list(${of})`, presence);
}

/** A map to strings, numbers or booleans. */
export function map<Of extends keyof Primitives>(of: Of): Field<Readonly<Record<string, Primitives[Of]>> | null>;
export function map<Of extends keyof Primitives>(
  of: Of,
  presence: Presence<Readonly<Record<string, Primitives[Of]>>>,
): Field<Readonly<Record<string, Primitives[Of]>>>;
export function map(of: string, presence?: Presence<unknown>): Field<never> {
  return attribute(`map(${of})`, presence);
}

/** A block that may occur once. */
export function block<Of extends Fields>(fields: Of): Field<ConfigOf<Of> | null>;
export function block<Of extends Fields>(fields: Of, presence: { readonly required: true }): Field<ConfigOf<Of>>;
export function block(fields: Fields, presence?: { readonly required: true }): Field<never> {
  return {
    spec: (name) =>
      Spec.create({
        blockValue: Block.create({ name, required: presence !== undefined, nested: objectSpec(fields) }),
      }),
  };
}

/** Any number of blocks of one name, in order. */
export function blocks<Of extends Fields>(
  fields: Of,
  limits: { readonly min?: number; readonly max?: number } = {},
): Field<readonly ConfigOf<Of>[]> {
  const { min = 0, max = 0 } = limits;
  return {
    spec: (name) =>
      Spec.create({
        blockList: BlockList.create({ name, minItems: min, maxItems: max, nested: objectSpec(fields) }),
      }),
  };
}

/** Blocks with one label each. */
export function labelledBlocks<Of extends Fields>(
  label: string,
  fields: Of,
): Field<Readonly<Record<string, ConfigOf<Of>>>> {
  return {
    spec: (name) => Spec.create({ blockMap: BlockMap.create({ name, labels: [label], nested: objectSpec(fields) }) }),
  };
}

/** The schema of all fields together. */
export function objectSpec(fields: Fields): Spec {
  const attributes = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.spec(name)]));
  return Spec.create({ object: ObjectSpec.create({ attributes }) });
}

/** Decodes the configuration that a host encoded with that schema. Throws if it is malformed. */
export function readConfig<Of extends Fields>(fields: Of, bytes: Uint8Array): ConfigOf<Of> {
  const value: Unpacked = bytes.length === 0 ? {} : unpack(bytes);
  if (typeof value !== "object" || value === null || Array.isArray(value) || value instanceof Uint8Array)
    throw new Error("the configuration is not an object");
  const given = value as Readonly<Record<string, Unpacked>>;
  // A compliant host sets every key; a missing key reads as null, like an unset field.
  return Object.fromEntries(Object.keys(fields).map((name) => [name, given[name] ?? null])) as ConfigOf<Of>;
}
