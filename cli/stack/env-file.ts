/**
 * Variable files (`.env`, `env_file`), by Compose's rules: `NAME=value`, `export NAME=value`, `NAME: value`. A single-quoted
 * value is literal; a double-quoted one supports `\n` and variables and may span lines; an unquoted one ends before ` #`. A
 * name alone takes its value from the environment, if any.
 */
import { interpolated, InterpolationError, type Variables } from "./interpolate.ts";
import { mistake } from "./located.ts";

const escapes: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", "\\": "\\", '"': '"', $: "$$" };

interface Quoted {
  readonly value: string;
  /** Position after the closing quote. */
  readonly end: number;
}

/** Null: the closing quote is missing. */
function quotedValue(text: string, from: number): Quoted | null {
  const quote = text.charAt(from);
  let value = "";
  for (let at = from + 1; at < text.length; at += 1) {
    const char = text.charAt(at);
    if (char === quote) return { value, end: at + 1 };
    const next = text.charAt(at + 1);
    if (quote === '"' && char === "\\" && escapes[next] !== undefined) {
      value += escapes[next];
      at += 1;
    } else value += char;
  }
  return null;
}

/** In file order; null: a name without a value, and unset in the environment. Throws UserError with file and line. */
export function parseEnvFile(
  text: string,
  file: string,
  outside: Variables,
  isRaw = false,
): ReadonlyMap<string, string | null> {
  const found = new Map<string, string | null>();
  const scope: Variables = {
    get: (name) => outside.get(name) ?? found.get(name) ?? undefined,
    ...(outside.missing === undefined ? {} : { missing: outside.missing.bind(outside) }),
  };
  const source = text.replace(/^\ufeff/, "").replaceAll("\r\n", "\n");
  let at = 0;
  let line = 1;
  const place = (): { file: string; line: number } => ({ file, line });
  while (at < source.length) {
    const lineEnd = source.indexOf("\n", at) < 0 ? source.length : source.indexOf("\n", at);
    const whole = source.slice(at, lineEnd);
    const trimmed = whole.trim();
    let next = lineEnd + 1;
    if (trimmed !== "" && !trimmed.startsWith("#")) {
      const match = /^\s*(?:export\s+)?([^\s=:#'"]+)\s*(?:[=:][^\S\n]*|$)/.exec(whole);
      if (match === null) throw mistake(place(), "", `invalid line '${trimmed}': expected NAME=VALUE`);
      const name = match[1] as string;
      const from = at + match[0].length;
      const isNameAlone = !/[=:]/.test(match[0]);
      const first = source.charAt(from);
      if (isNameAlone) found.set(name, outside.get(name) ?? null);
      else if (!isRaw && (first === '"' || first === "'") && from < lineEnd) {
        const quoted = quotedValue(source, from);
        if (quoted === null) throw mistake(place(), name, "has no closing quote");
        const rest = source.slice(
          quoted.end,
          source.indexOf("\n", quoted.end) < 0 ? undefined : source.indexOf("\n", quoted.end),
        );
        if (rest.trim() !== "" && !rest.trim().startsWith("#")) {
          throw mistake(place(), name, `has unexpected text after its closing quote: '${rest.trim()}'`);
        }
        found.set(name, first === "'" ? quoted.value : expanded(quoted.value, name));
        next = quoted.end + rest.length + 1;
      } else {
        const plain = source.slice(from, lineEnd);
        found.set(name, isRaw ? plain : expanded(plain.replace(/(?:^|\s+)#.*$/s, "").trim(), name));
      }
    }
    line += source.slice(at, next).split("\n").length - 1;
    at = next;
  }
  return found;

  function expanded(value: string, name: string): string {
    try {
      return interpolated(value, scope);
    } catch (error) {
      if (error instanceof InterpolationError) throw mistake(place(), name, error.message);
      throw error;
    }
  }
}
