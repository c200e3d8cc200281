// The log of a process.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { assert } from "../../lib/assert.ts";
import { createTelemetry } from "../../runtime/telemetry/telemetry.ts";
import { tempDir } from "../fixtures/muster.ts";

test("an error is logged with its message, its code and its stack, and a text unchanged", async (t) => {
  const logFile = join(tempDir(t, "log"), "process.log");
  const telemetry = await createTelemetry({ service: "test", level: "info", logFile, otlpEndpoint: undefined });
  t.teardown(() => telemetry.shutdown());
  const error = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
  telemetry.log.error({ error, record: "task.1" }, "cannot save");
  telemetry.log.error({ error: "a sentence" }, "cannot save");
  const lines = readFileSync(logFile, "utf8").trim().split("\n");
  const [first, second] = lines.map((line) => JSON.parse(line) as { readonly error: unknown });
  assert(first !== undefined, "a line for each call");
  t.like(first.error, { message: "no space left on device", code: "ENOSPC" });
  const { stack } = first.error as { readonly stack: string };
  t.regex(stack, /process-log\.test/);
  t.is(second?.error, "a sentence");
});
