/**
 * Reads a client's params in either shape: names are compared without case and hyphens, so that `auth-tag` also finds
 * `AuthTag`; null counts as absent, and absent as empty. A value of the wrong type gets `bad request`.
 */
import { RequestError } from "./request-error.ts";

type Fields = ReadonlyMap<string, unknown>;

const plain = (name: string): string => name.replaceAll("-", "").toLowerCase();

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export class Params {
  readonly #fields: Fields;
  readonly #path: string;

  private constructor(fields: Fields, path: string) {
    this.#fields = fields;
    this.#path = path;
  }

  /** `path`: the name of the value in errors. */
  static of(value: unknown, path = "params"): Params {
    if (value === null || value === undefined) return new Params(new Map(), path);
    if (!isObject(value)) throw new RequestError(`${path} is not an object`, "bad request");
    const fields = new Map<string, unknown>();
    for (const [key, each] of Object.entries(value)) {
      const name = plain(key);
      // Old command-line clients send a value under both of its names; the first non-empty one counts.
      if (each !== null && (!fields.has(name) || fields.get(name) === "")) fields.set(name, each);
    }
    return new Params(fields, path);
  }

  /** The raw value; undefined if absent or null. If there are several names, the first one present counts. */
  raw(...names: readonly string[]): unknown {
    for (const name of names) {
      const value = this.#fields.get(plain(name));
      if (value !== undefined) return value;
    }
    return undefined;
  }

  /** Names of all fields, in lower case without hyphens. */
  names(): Iterable<string> {
    return this.#fields.keys();
  }

  /** All fields, by their names as in `names`. */
  entries(): Iterable<readonly [string, unknown]> {
    return this.#fields;
  }

  has(name: string): boolean {
    return this.#fields.has(plain(name));
  }

  /** Empty if absent. If there are several names, the first non-empty one counts. */
  text(...names: readonly string[]): string {
    for (const name of names) {
      const value = this.raw(name) ?? "";
      if (typeof value !== "string") throw this.#wrong(name, "a string");
      if (value !== "") return value;
    }
    return "";
  }

  /** A whole number within ±2^53; null when absent. */
  integer(name: string): number | null {
    const value = this.raw(name);
    if (value === undefined) return null;
    if (!Number.isSafeInteger(value)) throw this.#wrong(name, "a whole number");
    return value as number;
  }

  /** False when absent. */
  flag(name: string): boolean {
    const value = this.raw(name) ?? false;
    if (typeof value !== "boolean") throw this.#wrong(name, "true or false");
    return value;
  }

  object(name: string): Params {
    return Params.of(this.raw(name), this.#pathOf(name));
  }

  objects(name: string): readonly Params[] {
    return this.#list(name).map((each, at) => Params.of(each, `${this.#pathOf(name)}[${at}]`));
  }

  texts(name: string): readonly string[] {
    return this.#list(name).map((each) => {
      if (typeof each !== "string") throw this.#wrong(name, "a list of strings");
      return each;
    });
  }

  /** A map whose keys are data and stay unchanged. */
  map(name: string): ReadonlyMap<string, unknown> {
    const value = this.raw(name) ?? {};
    if (!isObject(value)) throw this.#wrong(name, "an object");
    return new Map(Object.entries(value));
  }

  #list(name: string): readonly unknown[] {
    const value = this.raw(name) ?? [];
    if (!Array.isArray(value)) throw this.#wrong(name, "a list");
    return value as readonly unknown[];
  }

  #pathOf(name: string): string {
    return `${this.#path}.${name}`;
  }

  #wrong(name: string, wanted: string): RequestError {
    return new RequestError(`${this.#pathOf(name)} is not ${wanted}`, "bad request");
  }
}
