/** Type expressions: `string`, `list(map(number))`, `object({ a = string })`, `tuple([string, number])` (reference §3.2). */
import type { Type } from "./value.ts";

class TypeExpressionError extends Error {
  override readonly name = "TypeExpressionError";
}

/** Throws TypeExpressionError. */
export function parseType(text: string): Type {
  const tokens = text.match(/[A-Za-z_][\w-]*|"[^"]*"|[()[\]{},=:]|\S/g) ?? [];
  let at = 0;
  const fail = (): never => {
    throw new TypeExpressionError(`${JSON.stringify(text)} is not a type`);
  };
  const take = (expected: string): void => {
    if (tokens[at] !== expected) fail();
    at += 1;
  };
  const type = (depth: number): Type => {
    if (depth > 32) fail();
    const word = tokens[at++];
    switch (word) {
      case "string":
      case "number":
      case "bool":
      case "any":
        return { kind: word };
      case "null":
        return { kind: "any" };
      case "list":
      case "set":
      case "map": {
        take("(");
        const of = type(depth + 1);
        take(")");
        return { kind: word, of };
      }
      case "object": {
        take("(");
        take("{");
        const fields = new Map<string, Type>();
        while (tokens[at] !== "}") {
          const key = (tokens[at++] ?? fail()).replace(/^"(.*)"$/, "$1");
          if (!/^[A-Za-z_][\w-]*$/.test(key)) fail();
          if (tokens[at] !== "=" && tokens[at] !== ":") fail();
          at += 1;
          fields.set(key, type(depth + 1));
          if (tokens[at] === ",") at += 1;
        }
        take("}");
        take(")");
        return { kind: "object", fields };
      }
      case "tuple": {
        take("(");
        take("[");
        const items: Type[] = [];
        while (tokens[at] !== "]") {
          items.push(type(depth + 1));
          if (tokens[at] === ",") at += 1;
        }
        take("]");
        take(")");
        return { kind: "tuple", items };
      }
      default:
        return fail();
    }
  };
  const result = type(0);
  if (at !== tokens.length) fail();
  return result;
}
