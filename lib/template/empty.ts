/**
 * A field with its type's empty value that JSON omits, like Go's `omitempty`: templates can still access it, and print the
 * empty value.
 */
export class EmptyField {
  readonly value: unknown;

  constructor(value: unknown) {
    this.value = value;
  }

  /** Omits the field. */
  toJSON(): undefined {
    return undefined;
  }
}

/** The field's value in templates. */
export function fieldValue(value: unknown): unknown {
  return value instanceof EmptyField ? value.value : value;
}
