/**
 * A field that holds its type's empty value and is left out of JSON, as Go's `omitempty` has it: a template still finds it,
 * and shows the empty value.
 */
export class EmptyField {
  readonly value: unknown;

  constructor(value: unknown) {
    this.value = value;
  }

  /** Leaves the field out. */
  toJSON(): undefined {
    return undefined;
  }
}

/** What a template sees of a field. */
export function fieldValue(value: unknown): unknown {
  return value instanceof EmptyField ? value.value : value;
}
