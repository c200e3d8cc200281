/**
 * Converts a line of a plugin's standard error to a line of our log (docs/reference/nomad-driver-protocol.md §1.5): JSON if
 * the plugin writes JSON, otherwise text whose prefix may name its level. Any input yields a line; nothing here throws.
 */

export type LogLevel = "debug" | "info" | "warn" | "error";

interface PluginLogLine {
  readonly level: LogLevel;
  readonly message: string;
  /** Other fields of the line, without those that our log sets. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** True for the first line of a Go panic, to which the following lines belong. */
  readonly isPanic: boolean;
}

const levels: Readonly<Record<string, LogLevel>> = {
  trace: "debug",
  debug: "debug",
  info: "info",
  warn: "warn",
  error: "error",
};

/** Maximum length of a message or field, in characters. */
const textMax = 4_096;

function shortened(value: unknown): unknown {
  if (typeof value === "string") return value.length > textMax ? `${value.slice(0, textMax)}…` : value;
  if (typeof value !== "object" || value === null) return value;
  const text = JSON.stringify(value);
  return text.length > textMax ? `${text.slice(0, textMax)}…` : value;
}

function parsed(line: string): Readonly<Record<string, unknown>> | null {
  if (!line.startsWith("{")) return null;
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

export function parseLogLine(line: string): PluginLogLine {
  const json = parsed(line);
  const level = typeof json?.["@level"] === "string" ? levels[json["@level"].toLowerCase()] : undefined;
  if (json !== null && level !== undefined) {
    const message = json["@message"];
    const fields: Record<string, unknown> = {};
    for (const [key, value] of Object.entries(json)) {
      if (key === "@level" || key === "@message" || key === "@timestamp") continue;
      // `@module` and `@caller` without the prefix; a field cannot hide one of our log's.
      fields[key === "level" || key === "time" || key === "msg" ? `${key}_` : key.replace(/^@/, "")] = shortened(value);
    }
    const text = typeof message === "string" ? message : JSON.stringify(message ?? "");
    return { level, message: String(shortened(text)), fields, isPanic: false };
  }
  const isPanic = line.startsWith("panic: ") || line.startsWith("fatal error: ");
  const tag = /^\[(TRACE|DEBUG|INFO|WARN|ERROR)\]\s*/.exec(line);
  const tagged = tag === null ? undefined : levels[(tag[1] as string).toLowerCase()];
  return {
    level: isPanic ? "error" : (tagged ?? "debug"),
    message: String(shortened(tag === null ? line : line.slice(tag[0].length))),
    fields: {},
    isPanic,
  };
}
