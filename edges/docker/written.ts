/**
 * JSON of objects that is written once for as long as they exist: clients poll lists of which hardly anything has changed, and many
 * objects share their largest part.
 */
import { jsonPart, jsonText } from "../../lib/template/template.ts";

/** A value as JSON already. */
class Written {
  readonly text: string;

  constructor(value: unknown) {
    this.text = jsonText(value);
  }
}

export function textOf(value: unknown): string {
  return value instanceof Written ? value.text : jsonText(value);
}

/** Calls `convert` once for each item, for as long as that exists. */
function once<Item extends object, Result>(convert: (item: Item) => Result): (item: Item) => Result {
  const all = new WeakMap<Item, Result>();
  return (item) => {
    const known = all.get(item);
    if (known !== undefined) return known;
    const result = convert(item);
    all.set(item, result);
    return result;
  };
}

/**
 * Shows an object of the store as `objectOf` does, but converts it only once: such objects are immutable. `objectOf` must depend on
 * nothing else. A text is freed with its object.
 */
export function writtenOnce<Item extends object>(objectOf: (item: Item) => unknown): (item: Item) => unknown {
  return once((item) => new Written(objectOf(item)));
}

/** Likewise for a part that several objects share. */
export function partOnce<Part extends object>(partOf: (part: Part) => unknown): (part: Part) => unknown {
  return once((part) => jsonPart(partOf(part)));
}
