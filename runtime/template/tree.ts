/** What a template is made of once it is read. `at` is where a part begins in the template's text. */

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

/** The first operand, given the others; and as its last the value of the command before it. */
export interface Command {
  readonly operands: readonly Operand[];
  readonly at: number;
  /** As written, with one blank between operands. */
  readonly text: string;
}

export interface Pipeline {
  /** One, or for `range` two: the key and the value. */
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
