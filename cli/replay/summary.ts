/** Sentences about a recording: who made it, what is in it, and what is missing. */
import type { RecordedLine } from "../../proto/gen/messages.ts";
import { printable } from "../text-width.ts";
import { isoTime } from "../../runtime/recording/iso-time.ts";
import type { OpenedRecording } from "../../runtime/recording/opened.ts";
import type { SealCheck } from "../../runtime/recording/seal.ts";

function sealSentence(seal: SealCheck): string {
  switch (seal.kind) {
    case "signed":
      return `signed by manager ${seal.managerId} of cluster ${seal.clusterId} (root sha256:${seal.rootDigest})`;
    case "unsigned":
      return "not signed: its manager had no certificate";
    case "broken":
      return `NOT TO BE TRUSTED: ${seal.failed}`;
  }
}

const counted = (count: number, noun: string): string =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** Without control sequences: a recording may have been made by anyone. */
export function describeRecording({
  head,
  index,
  objects,
  lines,
  spans,
  missing,
  seal,
  fault,
}: OpenedRecording): readonly string[] {
  const { fromMs, toMs } = index;
  const minutes = ((toMs - fromMs) / 60_000).toFixed(1);
  return [
    sealSentence(seal),
    ...(fault === null || seal.kind === "broken" ? [] : [fault.message]),
    fromMs === 0 ? "no steps of actors" : `${isoTime(fromMs)} to ${isoTime(toMs)} (${minutes} minutes)`,
    [
      `${index.processes.length} ${index.processes.length === 1 ? "process" : "processes"}`,
      counted(index.stepsTotal, "step"),
      counted(objects?.transactions ?? 0, "transaction"),
      counted(lines.length, "log line"),
      counted(spans, "span"),
    ].join(", "),
    ...(objects === null ? ["no cluster objects"] : []),
    ...missing.map((each) => `missing: ${each}`),
    ...(head.version === "" ? [] : [`made by Muster ${head.version}`]),
  ].map(printable);
}

/** A log line on one line, as in `2026-11-26T00:00:00.000Z manager-ID warn  the node is silent {"node":"n1"}`. */
export function lineText({ atMs, fields, level, process, text }: RecordedLine): string {
  return printable([isoTime(atMs), process, level.padEnd(5), text, fields].join(" ").trimEnd());
}
