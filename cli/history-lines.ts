/** Formats an entry of a history: the change, who requested it, its fields, and below it what followed and when. */
import {
  Duration,
  Origin,
  type Caller,
  type Consequence,
  type FieldChange,
  type HistoryEntry,
} from "../proto/gen/messages.ts";
import { durationText, millisecondsOf } from "./values.ts";

const origins: { readonly [Each in Origin]: string } = {
  [Origin.ORIGIN_UNKNOWN]: "",
  [Origin.ORIGIN_ORCHESTRATOR]: "the orchestrator of replicated services",
  [Origin.ORIGIN_RESTART]: "the restart supervisor",
  [Origin.ORIGIN_ALLOCATOR]: "the allocator",
  [Origin.ORIGIN_SCHEDULER]: "the scheduler",
  [Origin.ORIGIN_ROLLOUT]: "the rollout",
  [Origin.ORIGIN_REAPER]: "the reaper",
  [Origin.ORIGIN_ENFORCER]: "the constraint enforcer",
  [Origin.ORIGIN_REBALANCE]: "rebalancing",
  [Origin.ORIGIN_SCHEDULE]: "the schedule",
  [Origin.ORIGIN_NODE_WATCH]: "the node watch",
  [Origin.ORIGIN_CERTIFICATES]: "the certificate authority",
  [Origin.ORIGIN_KEYS]: "the key manager",
  [Origin.ORIGIN_BOOTSTRAP]: "the creation of the cluster",
  [Origin.ORIGIN_JOBS]: "the orchestrator of jobs",
  [Origin.ORIGIN_GLOBAL]: "the orchestrator of global services",
  [Origin.ORIGIN_VOLUMES]: "the volume manager",
};

/** Such as `ada (uid 1000, pid 4711) with Control.UpdateService`; empty when unknown. */
function whoText(caller: Caller | null, origin: Origin): string {
  if (caller === null) return origins[origin] ?? "";
  const { method, nodeId, address, process, user } = caller;
  if (user !== "") return `${user}${address === "" ? "" : ` from ${address}`} with ${method}`;
  if (nodeId !== "") return `node ${nodeId}${address === "" ? "" : ` from ${address}`} with ${method}`;
  if (process !== null) {
    const ids = `uid ${process.uid}, pid ${process.pid}`;
    return `${process.user === "" ? ids : `${process.user} (${ids})`} with ${method}`;
  }
  return `${address === "" ? "the control socket" : address} with ${method}`;
}

function fieldText({ field, old, new: now }: FieldChange, isNew: boolean): string {
  if (isNew) return `${field} ${now}`;
  if (old === "") return `${field} added: ${now}`;
  if (now === "") return `${field} removed: ${old}`;
  return old === now ? `${field} changed ${now}` : `${field} ${old} → ${now}`;
}

/** Rounded: `+1.2s`. */
function offset(ms: number): string {
  const rounded = ms < 10_000 ? Math.round(ms / 100) / 10 : Math.round(ms / 1_000);
  const sign = ms < 0 ? "-" : "+";
  return (
    sign +
    durationText(
      Duration.create({ seconds: Math.floor(Math.abs(rounded)), nanos: Math.round((Math.abs(rounded) % 1) * 1e9) }),
    )
  );
}

function whenText({ first, last }: Consequence, baseMs: number | null): string {
  const [from, to] = [millisecondsOf(first) ?? 0, millisecondsOf(last) ?? 0];
  if (baseMs === null) return new Date(from).toISOString();
  const [begun, ended] = [offset(from - baseMs), offset(to - baseMs)];
  return begun === ended ? begun : `${begun}…${ended}`;
}

function consequenceText(one: Consequence): string {
  const { count, text, details } = one;
  const counted = count === 0 ? text : count === 1 ? `1 ${singular(text)}` : `${count} ${text}`;
  const by = origins[one.origin] ?? "";
  return `${counted}${details.length === 0 ? "" : `: ${details.join(", ")}`}${by === "" ? "" : ` (${by})`}`;
}

function singular(text: string): string {
  return text.replace(/^tasks\b/, "task").replace(/^further changes$/, "further change");
}

const past: Readonly<Record<string, string>> = {
  create: "created",
  update: "changed",
  remove: "removed",
  ask: "asked",
  before: "before that",
  "": "then",
};

interface EntryOptions {
  /** Whether several objects with that name have been printed. */
  readonly showsId: boolean;
}

export function entryLines(entry: HistoryEntry, { showsId }: EntryOptions): readonly string[] {
  const { version, action, fields, fieldsOmitted, caller, origin, followed, writer } = entry;
  const time = millisecondsOf(entry.time);
  const who = whoText(caller, origin);
  const name = entry.name === "" ? entry.objectId : entry.name;
  const what = `${entry.kind} ${name}${showsId && entry.name !== "" ? ` (${entry.objectId})` : ""} ${past[action] ?? action}`;
  const isChange = action !== "" && action !== "before";
  const by = isChange && who !== "" ? ` by ${who}` : "";
  const where = isChange && writer !== "" && caller !== null ? `, written by manager ${writer}` : "";
  const head = `${version === 0 ? "-" : version} ${time === null ? "" : `${new Date(time).toISOString()} `}${what}${by}${where}`;
  return [
    head,
    ...fields.map((field) => `    ${fieldText(field, action === "create")}`),
    ...(fieldsOmitted === 0 ? [] : [`    and ${fieldsOmitted} more fields`]),
    ...followed.map((one) => `    ${whenText(one, time).padEnd(14)} ${consequenceText(one)}`),
  ];
}
