/** The syntax tree of a template. `at` is the position of a node in the template's text. */

export type Operand =
  | { readonly kind: "dot"; readonly at: number }
  | { readonly kind: "nil"; readonly at: number }
  | { readonly kind: "literal"; readonly value: string | number | boolean; readonly at: number }
  /** `.a.b`, of the dot. */
  | { readonly kind: "fields"; readonly names: readonly string[]; readonly at: number }
  /** `$x.a.b`; `$` itself has an empty name. */
  | { readonly kind: "variable"; readonly name: string; readonly names: readonly string[]; readonly at: number }
  | { readonly kind: "function"; readonly name: string; readonly at: number }
  /** `(…).a` */
  | { readonly kind: "group"; readonly pipeline: Pipeline; readonly names: readonly string[]; readonly at: number };

/** The first operand is called with the others, and with the previous command's value as the last argument. */
export interface Command {
  readonly operands: readonly Operand[];
  readonly at: number;
  /** As written, with one space between operands. */
  readonly text: string;
}

export interface Pipeline {
  /** One, or two for `range`: the key and the value. */
  readonly variables: readonly string[];
  readonly isAssignment: boolean;
  readonly commands: readonly Command[];
  readonly at: number;
}

export interface Block {
  readonly kind: "if" | "with" | "range";
  readonly pipeline: Pipeline;
  readonly body: readonly Part[];
  /** After `{{else}}`. */
  readonly otherwise: readonly Part[];
}

export type Part =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "pipeline"; readonly pipeline: Pipeline }
  | Block
  | { readonly kind: "break" | "continue" };
