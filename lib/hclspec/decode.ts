/**
 * Reads a JSON or YAML configuration by a plugin's schema (reference §3.4).
 *
 * D1: every problem is reported, not just the first, each with the path of the wrong field.
 * D2: the result contains every key that the schema declares, null for those not set.
 */
import { decimalOf } from "./decimal.ts";
import { emptyScope, ExpressionError, evaluateTemplate, type Scope } from "./expression.ts";
import { namesOf, type Schema } from "./schema.ts";
import {
  ConversionError,
  boolValue,
  convert,
  convertAll,
  nullValue,
  numberValue,
  sequence,
  unify,
  type Value,
} from "./value.ts";

/** Parsed JSON or YAML. A number with more digits than a double holds can be a bigint. */
export type ConfigInput =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly ConfigInput[]
  | { readonly [key: string]: ConfigInput };

export interface Problem {
  /** Path of the wrong field, such as `ports[1].label`; empty for the configuration as a whole. */
  readonly path: string;
  readonly message: string;
}

interface Found {
  readonly value: ConfigInput;
  readonly path: string;
}

type Body = ReadonlyMap<string, readonly Found[]>;

function isObject(value: ConfigInput): value is { readonly [key: string]: ConfigInput } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function under(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

export class Decoder {
  readonly problems: Problem[] = [];
  readonly #scope: Scope;

  constructor(scope: Scope = emptyScope) {
    this.#scope = scope;
  }

  /** The value of a body that a schema describes. Unreadable parts become null, and are reported. */
  body(schema: Schema, input: ConfigInput, path: string): Value {
    const known = namesOf(schema);
    const body = new Map<string, Found[]>();
    const parts: readonly ConfigInput[] = Array.isArray(input) ? input : [input];
    for (const part of parts) {
      // In a list of blocks, null is an empty block; on its own it means no block.
      if (part === null) continue;
      if (!isObject(part)) {
        this.#report(path, "an object is required");
        continue;
      }
      for (const [key, value] of Object.entries(part)) {
        if (key === "//") continue;
        const at = under(path, key);
        if (!known.has(key)) this.#report(at, `No argument or block type is named "${key}"`);
        else body.set(key, [...(body.get(key) ?? []), { value, path: at }]);
      }
    }
    return this.#read(schema, body, path);
  }

  #report(path: string, message: string): Value {
    this.problems.push({ path, message });
    return nullValue;
  }

  #read(schema: Schema, body: Body, path: string): Value {
    switch (schema.kind) {
      case "object":
        return {
          kind: "object",
          entries: new Map([...schema.fields].map(([key, field]) => [key, this.#read(field, body, path)])),
        };
      case "array":
        return { kind: "tuple", items: schema.items.map((item) => this.#read(item, body, path)) };
      case "literal":
        return schema.value;
      case "default": {
        const primary = this.#read(schema.primary, body, path);
        return primary.kind === "null" ? this.#read(schema.otherwise, body, path) : primary;
      }
      case "attribute":
        return this.#attribute(schema, body, path);
      case "block":
        return this.#block(schema, body, path);
      case "attributes":
        return this.#attributes(schema, body, path);
      case "blocks":
        return this.#blocks(schema, body, path);
      case "labelled":
        return this.#labelled(schema, body, path);
    }
  }

  #attribute(schema: Schema & { readonly kind: "attribute" }, body: Body, path: string): Value {
    const [found, again] = body.get(schema.name) ?? [];
    if (again !== undefined) this.#report(again.path, `Argument "${schema.name}" was already set`);
    if (found === undefined) {
      if (schema.isRequired)
        this.#report(under(path, schema.name), `Missing required argument: The argument "${schema.name}" is required`);
      return nullValue;
    }
    return this.#converted(found, (value) => convert(value, schema.type));
  }

  #converted(found: Found, run: (value: Value) => Value): Value {
    try {
      return run(this.#expression(found.value, found.path));
    } catch (error) {
      if (!(error instanceof ConversionError)) throw error;
      const at = error.path.reduce(
        (path, key) => (/^\d+$/.test(key) ? `${path}[${key}]` : under(path, key)),
        found.path,
      );
      return this.#report(at, error.message);
    }
  }

  /** A value as written, with its templates evaluated. */
  #expression(input: ConfigInput, path: string): Value {
    if (input === null) return nullValue;
    if (typeof input === "boolean") return boolValue(input);
    if (typeof input === "string") return this.#template(input, path);
    if (typeof input === "number" || typeof input === "bigint") {
      const number = decimalOf(input);
      return number === null ? this.#report(path, `${input} is not a number`) : numberValue(number);
    }
    if (!isObject(input))
      return { kind: "tuple", items: input.map((item, at) => this.#expression(item, `${path}[${at}]`)) };
    const entries = new Map<string, Value>();
    for (const [key, item] of Object.entries(input)) {
      const name = this.#template(key, path);
      entries.set(name.kind === "string" ? name.text : key, this.#expression(item, under(path, key)));
    }
    return { kind: "object", entries };
  }

  #template(text: string, path: string): Value {
    try {
      return evaluateTemplate(text, this.#scope);
    } catch (error) {
      if (!(error instanceof ExpressionError)) throw error;
      return this.#report(path, error.message);
    }
  }

  /** The blocks that are written under a name: one object, or a list of several. */
  #written(name: string, body: Body): readonly Found[] {
    return (body.get(name) ?? []).flatMap(({ value, path }) => {
      if (value === null) return [];
      if (Array.isArray(value)) return value.map((item: ConfigInput, at) => ({ value: item, path: `${path}[${at}]` }));
      return [{ value, path }];
    });
  }

  #single(schema: { readonly name: string; readonly isRequired: boolean }, body: Body, path: string): Found | null {
    const [found, again] = this.#written(schema.name, body);
    if (again !== undefined) this.#report(again.path, `only one ${schema.name} block is allowed`);
    if (found === undefined && schema.isRequired)
      this.#report(under(path, schema.name), `Missing ${schema.name} block: a ${schema.name} block is required`);
    return found ?? null;
  }

  #block(schema: Schema & { readonly kind: "block" }, body: Body, path: string): Value {
    const found = this.#single(schema, body, path);
    return found === null ? nullValue : this.body(schema.nested, found.value, found.path);
  }

  #attributes(schema: Schema & { readonly kind: "attributes" }, body: Body, path: string): Value {
    const found = this.#single(schema, body, path);
    if (found === null) return nullValue;
    if (!isObject(found.value)) return this.#report(found.path, "an object is required");
    const given = Object.entries(found.value).filter(([key]) => key !== "//");
    return this.#converted(found, () => {
      const values = convertAll(
        given.map(([key, item]) => this.#expression(item, under(found.path, key))),
        schema.type,
        given.map(([key]) => key),
      );
      return { kind: "map", entries: new Map(given.map(([key], at) => [key, values[at] as Value])) };
    });
  }

  #blocks(schema: Schema & { readonly kind: "blocks" }, body: Body, path: string): Value {
    const written = this.#written(schema.name, body);
    const { name, min, max, isSet } = schema;
    if (min > 0 && written.length < min)
      this.#report(under(path, name), `Insufficient ${name} blocks: at least ${min} required`);
    if (max > 0 && written.length > max)
      this.#report(under(path, name), `Too many ${name} blocks: no more than ${max} allowed`);
    const items = written.map((found) => this.body(schema.nested, found.value, found.path));
    try {
      return sequence(isSet ? "set" : "list", unify(items));
    } catch (error) {
      if (!(error instanceof ConversionError)) throw error;
      return this.#report(under(path, name), error.message);
    }
  }

  #labelled(schema: Schema & { readonly kind: "labelled" }, body: Body, path: string): Value {
    const at = under(path, schema.name);
    const found = body.get(schema.name) ?? [];
    if (found.some(({ value }) => value === null || (Array.isArray(value) && value.length === 0)))
      return this.#report(at, `Missing ${schema.labels[0]} for ${schema.name}`);
    return this.#level(schema, 0, this.#written(schema.name, body));
  }

  #level(schema: Schema & { readonly kind: "labelled" }, level: number, found: readonly Found[]): Value {
    const label = schema.labels[level];
    const entries = new Map<string, Value>();
    const byLabel = new Map<string, Found[]>();
    for (const { value, path } of found) {
      if (!isObject(value)) {
        this.#report(path, `an object whose keys are the ${label} is required`);
        continue;
      }
      if (Object.keys(value).length === 0) this.#report(path, `Missing ${label} for ${schema.name}`);
      for (const [key, item] of Object.entries(value)) {
        const below = (Array.isArray(item) ? item : item === null ? [] : [item]) as readonly ConfigInput[];
        const at = under(path, key);
        byLabel.set(key, [...(byLabel.get(key) ?? []), ...below.map((one) => ({ value: one, path: at }))]);
      }
    }
    for (const [key, below] of byLabel) {
      const [only, again] = below;
      if (level < schema.labels.length - 1) entries.set(key, this.#level(schema, level + 1, below));
      else if (again !== undefined) this.#report(again.path, `Duplicate ${schema.name} block "${key}"`);
      else if (only !== undefined) entries.set(key, this.body(schema.nested, only.value, only.path));
    }
    return { kind: "map", entries };
  }
}
