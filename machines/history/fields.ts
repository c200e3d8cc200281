/**
 * The differences between two states of an object, field by field, in readable form.
 *
 * H1: contents of secrets and configs, keys, tokens and passwords are never shown, only that they changed.
 */
import { FieldChange } from "../../proto/gen/messages.ts";
import { shownOf, type Plain } from "./shown.ts";
import type { ToldKind, ToldObjects } from "./objects.ts";
import { textOf, wordsFor } from "./words.ts";

/** Maximum number of fields listed for one change; the rest are counted. */
const fieldsMax = 40;
/** Longer values are cut. */
const textMax = 200;

const hiddenText = "(not shown)";
/** Names of fields whose values are never shown (H1). */
const hidden =
  /^(?:data|payload|value|registryAuth|caKey|signingCaKey|signingCaCert|key|keys|unlockKeys|joinTokens|secretKey|password|token|networkBootstrapKeys)$/;

interface Leaf {
  readonly field: string;
  /** The value that is compared. */
  readonly raw: string;
  readonly text: string;
}

interface Difference {
  readonly fields: readonly FieldChange[];
  /** Number of further fields. */
  readonly omitted: number;
}

/** `old` null: the fields of a new object that identify it. */
export function differenceOf<Kind extends ToldKind>(
  kind: Kind,
  old: ToldObjects[Kind] | null,
  object: ToldObjects[Kind],
): Difference {
  const before = old === null ? new Map<string, Leaf>() : leavesOf(kind, old);
  const after = leavesOf(kind, object);
  const changes: FieldChange[] = [];
  for (const key of new Set([...after.keys(), ...before.keys()])) {
    const [was, is] = [before.get(key), after.get(key)];
    if (was?.raw === is?.raw) continue;
    // Some clients write defaults explicitly, others leave them out.
    if ((was === undefined && isDefault(is)) || (is === undefined && isDefault(was))) continue;
    const field = (is ?? was)?.field ?? key;
    changes.push(FieldChange.create({ field, old: was?.text ?? "", new: is?.text ?? "" }));
  }
  return { fields: changes.slice(0, fieldsMax), omitted: Math.max(0, changes.length - fieldsMax) };
}

function isDefault(leaf: Leaf | undefined): boolean {
  return leaf !== undefined && /^(?:0|false|)$/.test(leaf.raw);
}

function leavesOf<Kind extends ToldKind>(kind: Kind, object: ToldObjects[Kind]): Map<string, Leaf> {
  const leaves = new Map<string, Leaf>();
  collect(leaves, shownOf(kind, object), []);
  return leaves;
}

function collect(leaves: Map<string, Leaf>, value: Plain, path: readonly string[]): void {
  if (value === null || value === undefined) return;
  const name = path.at(-1) ?? "";
  const { field, sort } = wordsFor(path);
  const put = (key: string, of: string, raw: string, text: string): void => {
    const shown = text.length > textMax ? `${text.slice(0, textMax)}…` : text;
    leaves.set(key, { field: of, raw, text: shown });
  };
  // The number inside a wrapper message is also called `value`.
  const isHidden = hidden.test(name) && !path.includes("labels") && typeof value !== "number";
  if (isHidden) {
    put(field, field, JSON.stringify(value), hiddenText);
  } else if (Array.isArray(value)) {
    if (sort === "line") {
      put(field, field, JSON.stringify(value), value.map((each) => textOf(path, each as Plain)).join(" "));
      return;
    }
    for (const each of value as readonly Plain[]) {
      const text = textOf(path, each);
      const at = sort === "assignments" ? text.indexOf("=") : -1;
      // `env PORT: 80 → 81`, but `constraint node.role==worker` is either present or absent.
      if (at > 0) put(`${field} ${text.slice(0, at)}`, `${field} ${text.slice(0, at)}`, text, text.slice(at + 1));
      else put(`${field}\0${text}`, field, text, text);
    }
  } else if (typeof value === "object") {
    if (sort === "whole" || isDuration(value)) put(field, field, JSON.stringify(value), textOf(path, value));
    else for (const [key, each] of Object.entries(value)) collect(leaves, each, [...path, key]);
  } else put(field, field, String(value), textOf(path, value));
}

function isDuration(value: object): boolean {
  const keys = Object.keys(value);
  return keys.length > 0 && keys.every((key) => key === "seconds" || key === "nanos");
}
