/** Reports of saved rehearsals: one, or two that are compared; printed, and written as files. */
import { readFileSync } from "node:fs";
import { UserError } from "../../lib/user-error.ts";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import type { RehearsalOutcome } from "../../simulation/rehearsal/outcome.ts";
import { formatOf, plainFormat } from "../command.ts";
import type { Shell } from "../shell.ts";
import { comparisonLines } from "./comparison-lines.ts";
import { comparisonPage, reportPage } from "./html.ts";
import { comparisonJson, reportJson } from "./json.ts";
import { readOutcome } from "./read-outcome.ts";
import { summaryLines } from "./summary.ts";

/** Flags that write a report as a file. */
export const reportFlags = {
  html: { type: "string", value: "PATH", help: "Write the report as one HTML page to this file" },
  json: { type: "string", value: "PATH", help: "Write the report with every seed as JSON to this file" },
  format: plainFormat,
} as const;

export interface ReportFiles {
  readonly html?: string | undefined;
  readonly json?: string | undefined;
  /** On standard output: `table` or `json`. */
  readonly format?: string | undefined;
}

/** Command that runs one seed again and opens it in replay. `command`: that of the rehearsal. */
function openCommand(command: string, seed: number): string {
  const file = `seed-${seed}.mrec`;
  return `${command} --seed ${seed} --record ${file} && muster replay ${file}`;
}

/** Prints the report and writes the files. `command`: command line of the rehearsal, without what chooses seeds. Throws UserError. */
export function report(shell: Shell, outcome: RehearsalOutcome, command: string, files: ReportFiles): void {
  const open = (seed: number): string => openCommand(command, seed);
  if (formatOf(files.format) === "json") shell.print(reportJson(outcome, command));
  else for (const line of summaryLines(outcome, { width: shell.width ?? null, openCommand: open })) shell.print(line);
  if (files.html !== undefined) write(files.html, reportPage(outcome, open));
  if (files.json !== undefined) write(files.json, reportJson(outcome, command));
}

/** `paths`: one or two JSON reports. Throws UserError. */
export function reportSaved(shell: Shell, paths: readonly string[], files: ReportFiles): void {
  const [first, second] = paths.map((path) => readOutcome(read(path), path));
  if (first === undefined) throw new UserError("no report is named");
  if (second === undefined) return report(shell, first.outcome, first.command, files);
  reportComparison(shell, first.outcome, second.outcome, files);
}

/** Prints the comparison and writes the files. Throws UserError. */
export function reportComparison(
  shell: Shell,
  before: RehearsalOutcome,
  after: RehearsalOutcome,
  files: ReportFiles,
): void {
  if (formatOf(files.format) === "json") shell.print(comparisonJson(before, after));
  else for (const line of comparisonLines(before, after, shell.width ?? null)) shell.print(line);
  if (files.html !== undefined) write(files.html, comparisonPage(before, after));
  if (files.json !== undefined) write(files.json, comparisonJson(before, after));
}

function read(path: string): string {
  try {
    return readFileSync(path === "-" ? 0 : path, "utf8");
  } catch (error) {
    throw new UserError(`cannot read the report ${path}: ${(error as Error).message}`, { cause: error });
  }
}

/** Replaces the file as a whole. Throws UserError. */
export function write(path: string, text: string | Uint8Array): void {
  try {
    replaceFileSync(path, text);
  } catch (error) {
    throw new UserError(`cannot write ${path}: ${(error as Error).message}`, { cause: error });
  }
}
