/** Go's `Sprintf`, for strings, integers and other numbers, booleans, lists and maps. */
import { kindOf, textOf } from "./print.ts";
import { valueMax } from "./budget.ts";

/** Maximum width of a column; bounds the cost of `%1000000000d`. */
const widthMax = 10_000;

const directive = /%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(.|$)/gsu;
const hasPrecision = /\.(?:\*|\d+)?.?$/su;

interface Form {
  readonly flags: string;
  readonly width: number;
  /** Null: not specified. */
  readonly precision: number | null;
}

/**
 * A value that does not fit its verb is shown in the text, as in Go (`%!d(string=hi)`). Throws Error only if the text would
 * exceed `valueMax`.
 */
export function sprintf(format: string, values: readonly unknown[]): string {
  let next = 0;
  let length = format.length;
  const bounded = (part: string): string => {
    length += part.length;
    if (length > valueMax) throw new Error(`a value exceeds ${valueMax} characters`);
    return part;
  };
  const amount = (text: string | undefined): number => {
    const requested = text === "*" ? Number(values[next++] ?? 0) : Number(text ?? 0);
    return Number.isFinite(requested) ? Math.min(Math.max(Math.trunc(requested), -widthMax), widthMax) : 0;
  };
  const text = format.replaceAll(directive, (whole, flags: string, width?: string, precision?: string, verb = "") => {
    if (verb === "%") return "%";
    if (verb === "") return "%!(NOVERB)";
    const columns = amount(width);
    const form: Form = {
      flags: columns < 0 ? `${flags}-` : flags,
      width: Math.abs(columns),
      precision: hasPrecision.test(whole) ? Math.max(0, amount(precision)) : null,
    };
    if (next >= values.length) return `%!${verb}(MISSING)`;
    return formatted(verb, values[next++], form, bounded);
  });
  if (next >= values.length) return text;
  const extra = values.slice(next).map((value) => `${kindOf(value)}=${textOf(value)}`);
  return `${text}%!(EXTRA ${extra.join(", ")})`;
}

function formatted(verb: string, value: unknown, form: Form, bounded: (part: string) => string): string {
  if (verb === "T") return bounded(padded(kindOf(value), form));
  // Go applies a verb to each item of a list.
  if (Array.isArray(value) && verb !== "v")
    return `[${value.map((item) => formatted(verb, item, form, bounded)).join(" ")}]`;
  const text = plain(verb, value, form);
  if (text === null) return bounded(`%!${verb}(${kindOf(value)}=${textOf(value)})`);
  return bounded(padded(text, form, typeof value === "number"));
}

/** Null if the verb does not fit the value. */
function plain(verb: string, value: unknown, form: Form): string | null {
  if (verb === "v") return typeof value === "number" ? signed(textOf(value), form) : cut(textOf(value), form);
  if (typeof value === "boolean") return verb === "t" ? String(value) : null;
  if (typeof value === "number") return number(verb, value, form);
  const text = typeof value === "string" || value === undefined ? (value ?? "") : null;
  switch (verb) {
    case "s":
      return text === null && value !== null ? textOf(value) : text === null ? null : cut(text, form);
    case "q":
      return text === null ? null : JSON.stringify(cut(text, form));
    case "x":
    case "X": {
      if (text === null) return null;
      const hex = Buffer.from(text, "utf8").toString("hex");
      return verb === "x" ? hex : hex.toUpperCase();
    }
    default:
      return null;
  }
}

function number(verb: string, value: number, form: Form): string | null {
  const radix = { b: 2, o: 8, x: 16, X: 16 }[verb];
  if (verb === "d" || radix !== undefined) {
    if (!Number.isInteger(value)) return null;
    const digits = Math.abs(value).toString(radix ?? 10);
    const cased = verb === "X" ? digits.toUpperCase() : digits;
    const prefix = form.flags.includes("#") ? ({ b: "0b", o: "0", x: "0x", X: "0X" }[verb] ?? "") : "";
    return signed(`${value < 0 ? "-" : ""}${prefix}${cased.padStart(form.precision ?? 0, "0")}`, form);
  }
  switch (verb) {
    case "c":
      return value >= 0 && value <= 0x10_ff_ff ? String.fromCodePoint(Math.trunc(value)) : "\ufffd";
    case "q":
      return value >= 0 && value <= 0x10_ff_ff ? `'${String.fromCodePoint(Math.trunc(value))}'` : null;
    case "U":
      return `U+${value.toString(16).toUpperCase().padStart(4, "0")}`;
    case "f":
    case "F":
      return signed(value.toFixed(Math.min(form.precision ?? 6, 100)), form);
    case "e":
    case "E": {
      const text = value.toExponential(Math.min(form.precision ?? 6, 100)).replace(/e([+-])(\d)$/, "e$10$2");
      return signed(verb === "E" ? text.toUpperCase() : text, form);
    }
    case "g":
    case "G":
      return signed(
        form.precision === null
          ? textOf(value)
          : textOf(Number(value.toPrecision(Math.min(Math.max(form.precision, 1), 100)))),
        form,
      );
    default:
      return null;
  }
}

function signed(text: string, { flags }: Form): string {
  if (text.startsWith("-")) return text;
  if (flags.includes("+")) return `+${text}`;
  return flags.includes(" ") ? ` ${text}` : text;
}

function cut(text: string, { precision }: Form): string {
  if (precision === null || text.length <= precision) return text;
  // A character takes at most two UTF-16 code units.
  return Array.from(text.slice(0, 2 * precision))
    .slice(0, precision)
    .join("");
}

function padded(text: string, { flags, width }: Form, isNumber = false): string {
  if (width === 0 || text.length >= 2 * width) return text;
  const missing = width - Array.from(text).length;
  if (missing <= 0) return text;
  if (flags.includes("-")) return text + " ".repeat(missing);
  if (!flags.includes("0") || !isNumber) return " ".repeat(missing) + text;
  const [, sign = "", digits = ""] = /^([-+ ]?)(.*)$/s.exec(text) ?? [];
  return sign + "0".repeat(missing) + digits;
}
