/** Copies of messages that have the listed fields only: a field that nobody has listed, such as a new one, is left out. */
import type { Codec } from "../../proto/codec.ts";

/** The elements of a list, or the value itself. */
type Item<Value> = Value extends readonly (infer Element)[] ? Element : NonNullable<Value>;

/**
 * `true`: the unchanged value, for numbers, enums, and texts that may be seen. A function makes the value, of a list each element.
 */
export type Allowed<Message> = {
  readonly [Name in keyof Message]?: true | ((value: Item<Message[Name]>) => Item<Message[Name]>);
};

/** Fields that are absent stay absent, so a message still says which of its alternatives it has. */
export function only<Message extends object>(
  codec: Pick<Codec<Message>, "create">,
  fields: Allowed<Message>,
): (message: Message) => Message {
  const entries = Object.entries(fields) as [keyof Message, true | ((value: unknown) => unknown)][];
  return (message) => {
    const kept: Partial<Message> = {};
    for (const [name, rule] of entries) {
      // Defaults are on the prototype, as `codec.create` has them, too.
      if (!Object.hasOwn(message, name)) continue;
      const value: unknown = message[name];
      if (value === null || value === undefined) continue;
      kept[name] = (
        rule === true ? value : Array.isArray(value) ? value.map((each) => rule(each)) : rule(value)
      ) as Message[keyof Message];
    }
    return codec.create(kept);
  };
}
