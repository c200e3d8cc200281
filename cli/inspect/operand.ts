/**
 * The operands of `muster inspect`. With a `/`, an operand is one actor: its id, a unique prefix of the id, or the
 * name of the node, service or task in place of its id (`session/worker-1`). A word is a kind of actor or a chart, or else a process
 * (its id, a prefix of it, or its hostname) and the object of that name.
 */
import { kindOf, type Actor, type Process } from "../../proto/feed/actors.ts";
import { NotThereError, UserError } from "../../lib/user-error.ts";
import { didYouMean, similarTo } from "../help/suggestion.ts";
import { segmentsOf, type Names } from "./names.ts";

export interface Known {
  readonly processes: readonly Process[];
  readonly actors: readonly Actor[];
  readonly names: Names;
}

/** Candidates in the message about an ambiguous operand. */
const candidatesShown = 10;

export const isActorOperand = (operand: string): boolean => /^[^/]+\/./.test(operand);

export type Matches = (process: string, actor: string) => boolean;

/** `manager-` or `node-` may be left out. */
function isProcess({ id, hostname }: Process, text: string): boolean {
  return hostname === text || id.startsWith(text) || id.replace(/^[a-z]+-/, "").startsWith(text);
}

/** Ids of the processes that `text` stands for. Throws NotThereError. */
export function processesFor(text: string, { processes }: Pick<Known, "processes">): readonly string[] {
  const exact = processes.filter(({ id }) => id === text);
  const found = exact.length > 0 ? exact : text === "" ? [] : processes.filter((process) => isProcess(process, text));
  if (found.length > 0) return found.map(({ id }) => id);
  const similar = similarTo(
    text,
    processes.flatMap(({ id, hostname }) => [id, hostname]),
  );
  throw new NotThereError(`process "${text}" not found: ${didYouMean(similar)}see 'muster inspect'`);
}

/** Whether the ids in `actor` are those of the operand, compared one by one. */
function hasIds(actor: string, wanted: readonly string[], isSame: (id: string, wanted: string) => boolean): boolean {
  const ids = segmentsOf(actor);
  return ids.length === wanted.length && ids.every((id, at) => isSame(id, wanted[at] ?? ""));
}

/** `charts`: names of a chart are `agentTask` and, as in `muster charts`, `agent-task`. */
const isKind = ({ id, machine }: Actor, text: string): boolean =>
  kindOf(id) === text ||
  machine === text ||
  machine.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`) === text;

/** The actors that `operand` may stand for: by id, else by names, else by a prefix. */
async function actorsFor(operand: string, { actors, names }: Known): Promise<readonly Actor[]> {
  const exact = actors.filter(({ id }) => id === operand);
  if (exact.length > 0) return exact;
  const [kind = "", ...wanted] = operand.split("/");
  const ofKind = actors.filter((actor) => isKind(actor, kind));
  const groups = await Promise.all(wanted.map((text) => names.idsOf(text)));
  const most = Math.max(...groups.map(({ length }) => length));
  for (let at = 0; at < most; at += 1) {
    const ids = groups.map((group) => group[at] ?? group[0] ?? []);
    const found = ofKind.filter(({ id }) =>
      hasIds(id, wanted, (each, text) => each === text || (ids[wanted.indexOf(text)] ?? []).includes(each)),
    );
    if (found.length > 0) return found;
  }
  return ofKind.filter(({ id }) => hasIds(id, wanted, (each, text) => each.startsWith(text)));
}

function notFound(operand: string, { actors, names }: Known): NotThereError {
  const [kind = ""] = operand.split("/");
  const ofKind = actors.filter((actor) => isKind(actor, kind));
  if (ofKind.length === 0) {
    const similar = similarTo(kind, [...new Set(actors.map(({ id }) => kindOf(id)))]);
    return new NotThereError(`no actor of kind "${kind}" is running: ${didYouMean(similar)}see 'muster inspect'`);
  }
  const known = ofKind.flatMap(({ id }) => [id, `${kindOf(id)}/${names.nameOf(id)}`]);
  const guess = didYouMean(similarTo(operand, [...new Set(known)]));
  return new NotThereError(`actor "${operand}" not found: ${guess}see 'muster inspect ${kind}'`);
}

/** The one actor that `operand` stands for. Throws NotThereError, or UserError when there are several. */
export async function actorFor(operand: string, known: Known): Promise<Actor> {
  const found = await actorsFor(operand, known);
  const [first, ...more] = found;
  if (first === undefined) throw notFound(operand, known);
  if (more.length === 0) return first;
  const hosts = new Map(known.processes.map(({ id, hostname }) => [id, hostname]));
  const isSameId = more.every(({ id }) => id === first.id);
  const choices = found.slice(0, candidatesShown).map(({ id, process }) => {
    const name = known.names.nameOf(id);
    return `  ${id}${name === "" ? "" : ` (${name})`} in ${process}${hosts.get(process) === "" ? "" : ` on ${hosts.get(process)}`}`;
  });
  const rest = found.length > candidatesShown ? [`  … and ${found.length - candidatesShown} more`] : [];
  const how = isSameId ? "choose one with --process" : "give more of the id";
  throw new UserError([`"${operand}" is ambiguous: ${how}:`, ...choices, ...rest].join("\n"));
}

/** Which actors the operands of a listing stand for; none: all. Throws NotThereError. */
export async function matcherFor(operands: readonly string[], known: Known): Promise<Matches> {
  if (operands.length === 0) return () => true;
  const matchers = await Promise.all(operands.map((operand) => matcherOf(operand, known)));
  return (process, actor) => matchers.some((matches) => matches(process, actor));
}

async function matcherOf(operand: string, known: Known): Promise<Matches> {
  if (isActorOperand(operand)) {
    const found = await actorsFor(operand, known);
    if (found.length === 0) throw notFound(operand, known);
    const ids = new Set(found.map(({ id }) => id));
    return (_, actor) => ids.has(actor);
  }
  const word = operand.replace(/\/$/, "");
  const kinds = new Set(known.actors.filter((actor) => isKind(actor, word)).map(({ id }) => kindOf(id)));
  if (kinds.size > 0) return (_, actor) => kinds.has(kindOf(actor));
  const processes = new Set(known.processes.filter((each) => word !== "" && isProcess(each, word)).map(({ id }) => id));
  const ids = new Set((await known.names.idsOf(word)).flat());
  if (processes.size > 0 || ids.size > 0)
    return (process, actor) => processes.has(process) || segmentsOf(actor).some((id) => ids.has(id));
  const words = [
    ...known.actors.map(({ id }) => kindOf(id)),
    ...known.processes.flatMap(({ id, hostname }) => [id, hostname]),
    ...known.names.all(),
  ];
  throw new NotThereError(
    `no actor, kind, process or object "${operand}": ${didYouMean(similarTo(word, [...new Set(words)]))}see 'muster inspect'`,
  );
}
