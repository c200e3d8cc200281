/** Whether two messages are equal, field by field. An absent scalar equals its default, as on the wire. */

type Fields = Readonly<Record<string, unknown>>;

/** Names of all fields, including those that only the prototype has (the defaults). */
function fieldsOf(message: Fields): readonly string[] {
  const names: string[] = [];
  for (const name in message) if (typeof message[name] !== "function") names.push(name);
  return names;
}

export function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

/** Messages, lists, maps (in any order), bytes and scalars. */
export function isSameMessage(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (a instanceof Uint8Array || b instanceof Uint8Array) {
    return a instanceof Uint8Array && b instanceof Uint8Array && isSameBytes(a, b);
  }
  if (Array.isArray(a) || Array.isArray(b)) {
    return (
      Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, at) => isSameMessage(item, b[at]))
    );
  }
  const [left, right] = [a as Fields, b as Fields];
  const names = fieldsOf(left);
  if (names.length !== fieldsOf(right).length) return false;
  return names.every((name) => isSameMessage(left[name], right[name]));
}
