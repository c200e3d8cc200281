/**
 * A plugin's log: JSON lines on standard error, in the format that hosts parse (reference §1.5). Never throws: a plugin whose
 * host has died continues without a log until the next host attaches.
 */
import { writeSync } from "node:fs";
import type { Logger } from "../../../runtime/ports/index.ts";

/** Exactly six fractional digits: a Go host does not parse other formats. */
function timestamp(nowMs: number): string {
  return new Date(nowMs).toISOString().replace("Z", "000Z");
}

/** The text of an error. */
function plain(value: unknown): unknown {
  return value instanceof Error ? value.message : value;
}

/** `module`: the plugin's name, under which the host logs the lines. */
export function pluginLog(module: string): Logger {
  const write =
    (level: string) =>
    (fields: object, message: string): void => {
      const rest: Record<string, unknown> = {};
      for (const [key, value] of Object.entries(fields)) rest[key.replace(/^@+/, "")] = plain(value);
      // These three must be strings: a Go host fails on any other type.
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
        // Nobody reads it, or a field cannot be encoded.
      }
    };
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}
