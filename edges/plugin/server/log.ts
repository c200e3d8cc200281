/**
 * A plugin's log: lines of JSON on standard error, in the form in which a host reads them (reference §1.5). Never throws:
 * a plugin whose host has died goes on without a log, for the next host to find.
 */
import { writeSync } from "node:fs";
import type { Logger } from "../../../runtime/ports.ts";

/** Six digits of a second, exactly: with another number of them a Go host does not read the line. */
function timestamp(nowMs: number): string {
  return new Date(nowMs).toISOString().replace("Z", "000Z");
}

/** What the field of an error says. */
function plain(value: unknown): unknown {
  return value instanceof Error ? value.message : value;
}

/** `module`: the plugin's name, under which the host files the lines. */
export function pluginLog(module: string): Logger {
  const write =
    (level: string) =>
    (fields: object, message: string): void => {
      const rest: Record<string, unknown> = {};
      for (const [key, value] of Object.entries(fields)) rest[key.replace(/^@+/, "")] = plain(value);
      // The three of these must be strings: a Go host falls over any other kind.
      const line = {
        "@level": level,
        "@message": message,
        "@module": module,
        "@timestamp": timestamp(Date.now()),
        ...rest,
      };
      try {
        writeSync(2, `${JSON.stringify(line)}\n`);
      } catch {
        // Nobody reads it, or a field cannot be written.
      }
    };
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}
