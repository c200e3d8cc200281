/** The files of one simulated run: its trace, its spans and its recording. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Keeps } from "../../simulation/scene.ts";
import type { SimResult } from "../../simulation/world.ts";
import { otlpJson } from "./otlp.ts";

/** The parts of a run that its files need. */
export const filesKeep: Keeps = { trace: true, spans: true, recording: true };

/** Writes the files, named such as `seed-7`; returns a line for each, with its path and how it is opened. */
export function saveRun(folder: string, name: string, run: Pick<SimResult, "trace" | "spans" | "recording">): string[] {
  const path = (ending: string): string => join(folder, `${name}.${ending}`);
  writeFileSync(path("trace"), run.trace);
  writeFileSync(path("otlp.json"), otlpJson(run.spans));
  writeFileSync(path("mrec"), run.recording ?? new Uint8Array());
  return [
    `trace: ${path("trace")} (text: read upwards from FAILED)`,
    `spans: ${path("otlp.json")} (OTLP in JSON: upload it to Jaeger, or post it to /v1/traces of any collector)`,
    `recording: ${path("mrec")} (muster replay ${path("mrec")})`,
  ];
}
