/**
 * How a driver written in TypeScript says what its configuration looks like: an object of fields, from which both the
 * schema that the host checks (hclspec) and the type that the driver gets are made.
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
import { unpack, type Unpacked } from "../../../runtime/hclspec/msgpack.ts";

/** One field; the type is that of the value a driver gets. */
export interface Field<Type> {
  /** `name` is the field's key. */
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

/** Neither: the value is null where nothing is written. */
export type Presence<Type> = { readonly required: true } | { readonly default: Type };

/** A JSON value as an expression of HCL, in which `${` and `%{` begin something. */
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

/** A list of texts, numbers or flags. */
export function list<Of extends keyof Primitives>(of: Of): Field<readonly Primitives[Of][] | null>;
export function list<Of extends keyof Primitives>(
  of: Of,
  presence: Presence<readonly Primitives[Of][]>,
): Field<readonly Primitives[Of][]>;
export function list(of: string, presence?: Presence<unknown>): Field<never> {
  return attribute(`list(${of})`, presence);
}

/** Texts, numbers or flags by name. */
export function map<Of extends keyof Primitives>(of: Of): Field<Readonly<Record<string, Primitives[Of]>> | null>;
export function map<Of extends keyof Primitives>(
  of: Of,
  presence: Presence<Readonly<Record<string, Primitives[Of]>>>,
): Field<Readonly<Record<string, Primitives[Of]>>>;
export function map(of: string, presence?: Presence<unknown>): Field<never> {
  return attribute(`map(${of})`, presence);
}

/** A block that is written once at most. */
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

/** Blocks of one name, in order. */
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

/** Blocks with a label each. */
export function labelledBlocks<Of extends Fields>(
  label: string,
  fields: Of,
): Field<Readonly<Record<string, ConfigOf<Of>>>> {
  return {
    spec: (name) => Spec.create({ blockMap: BlockMap.create({ name, labels: [label], nested: objectSpec(fields) }) }),
  };
}

/** The schema of all the fields together. */
export function objectSpec(fields: Fields): Spec {
  const attributes = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.spec(name)]));
  return Spec.create({ object: ObjectSpec.create({ attributes }) });
}

/** The configuration in the bytes that a host made by that schema. Throws for bytes that are none. */
export function readConfig<Of extends Fields>(fields: Of, bytes: Uint8Array): ConfigOf<Of> {
  const value: Unpacked = bytes.length === 0 ? {} : unpack(bytes);
  if (typeof value !== "object" || value === null || Array.isArray(value) || value instanceof Uint8Array)
    throw new Error("the configuration is no object");
  const given = value as Readonly<Record<string, Unpacked>>;
  // A host that speaks the protocol has filled every key; a missing one reads as null, as an unset one does.
  return Object.fromEntries(Object.keys(fields).map((name) => [name, given[name] ?? null])) as ConfigOf<Of>;
}
