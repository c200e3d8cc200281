/** JSON of objects that is written once for as long as they exist: clients poll lists of which hardly anything has changed. */
import { jsonText } from "../../lib/template/template.ts";

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

/**
 * Shows an object of the store as `objectOf` does, but converts it only once: such objects are immutable. `objectOf` must depend on
 * nothing else. A text is freed with its object.
 */
export function writtenOnce<Item extends object>(objectOf: (item: Item) => unknown): (item: Item) => unknown {
  const all = new WeakMap<Item, Written>();
  return (item) => {
    const known = all.get(item);
    if (known !== undefined) return known;
    const written = new Written(objectOf(item));
    all.set(item, written);
    return written;
  };
}
