/** `muster inspect`: the live actors of all processes as a table, or one of them as the statechart that runs it. */
import { Actors, type Actor } from "../proto/feed/actors.ts";
import { ActorSelection, type Node } from "../proto/gen/messages.ts";
import { NotThereError, UsageError } from "../lib/user-error.ts";
import { command, listingOptions, type Command } from "./command.ts";
import { didYouMean, similarTo } from "./help/suggestion.ts";
import type { ActorPicture } from "./inspect/drawing.ts";
import { expectedProcesses } from "./inspect/expected.ts";
import { shortcomings, watchActors } from "./inspect/feed.ts";
import { followActor, printPicture } from "./inspect/follow-actor.ts";
import { followList } from "./inspect/follow-list.ts";
import { listed, listingOf, type Filter } from "./inspect/listing.ts";
import { namesFor, permitted } from "./inspect/names.ts";
import { actorFor, isActorOperand, matcherFor, processesFor, type Known } from "./inspect/operand.ts";
import { recentSteps } from "./inspect/recent.ts";
import { inspectorUrl } from "./inspect/stately-link.ts";
import { listNodes, withManager, type ManagerClient } from "./manager-client.ts";
import type { Shell } from "./shell.ts";
import { printListing } from "./table.ts";

/** The actors that run now; those of some kinds if any are given. */
async function currentActors(
  client: ManagerClient,
  shell: Shell,
  kinds: readonly string[],
  expected: () => Iterable<string>,
): Promise<Actors> {
  const actors = new Actors();
  const selection = ActorSelection.create({ actors: kinds.map((kind) => `${kind}/`), withoutSteps: true });
  const watch = watchActors({ channel: client.channel, selection, actors, now: () => shell.now(), expected });
  try {
    await watch.settled;
  } finally {
    watch.cancel();
  }
  return actors;
}

interface Found {
  readonly actors: Actors;
  readonly known: Known;
  /** Processes that should answer, with their hostnames. */
  readonly expected: ReadonlyMap<string, string>;
}

/** The actors among which the operands are looked up: those of their kinds, or all, which also serve to suggest another name. */
async function find(client: ManagerClient, shell: Shell, operands: readonly string[]): Promise<Found> {
  let nodes: readonly Node[] = [];
  let expected: ReadonlyMap<string, string> = new Map();
  const listing = permitted(listNodes(client)).then((found) => {
    nodes = found;
    expected = expectedProcesses(found);
  });

  async function among(kinds: readonly string[]): Promise<Found> {
    const [actors] = await Promise.all([currentActors(client, shell, kinds, () => expected.keys()), listing]);
    const processes = [...actors.processes.values()];
    const all = processes.flatMap((process) => [...process.actors.values()]);
    const ids = all.map(({ id }) => id);
    return { actors, expected, known: { processes, actors: all, names: await namesFor(client, nodes, ids) } };
  }

  const kinds = operands.every(isActorOperand) ? operands.map((operand) => operand.split("/", 1)[0] as string) : [];
  if (kinds.length === 0) return among([]);
  const found = await among([...new Set(kinds)]);
  try {
    await matcherFor(operands, found.known);
    return found;
  } catch (error) {
    if (error instanceof NotThereError) return among([]);
    throw error;
  }
}

/** The actor that the command is about; null if it is about several. */
async function oneActor(operands: readonly string[], within: Known): Promise<Actor | null> {
  const [operand = ""] = operands;
  if (operands.length !== 1) return null;
  if (isActorOperand(operand)) return actorFor(operand, within);
  // Such as `ledger`, which each manager has.
  const same = within.actors.filter(({ id }) => id === operand);
  return same.length === 1 ? (same[0] ?? null) : null;
}

async function pictureOf(client: ManagerClient, shell: Shell, actor: Actor, found: Found): Promise<ActorPicture> {
  const process = found.actors.processes.get(actor.process);
  if (process === undefined) throw new Error(`no process of ${actor.id}`);
  // Loaded only here: the charts are many modules.
  const { chartDefinitionOf } = await import("./chart-definitions.ts");
  const [chart, { steps, missing }] = await Promise.all([
    chartDefinitionOf(actor.machine),
    recentSteps(client.channel, process.id, actor.id),
  ]);
  return {
    actor,
    process,
    name: found.known.names.nameOf(actor.id),
    chart,
    steps,
    stepsMissing: missing,
    ended: false,
    nowMs: shell.now() + process.skewMs,
    width: null,
    height: null,
  };
}

function only(within: Known, processes: ReadonlySet<string> | null): Known {
  if (processes === null) return within;
  return { ...within, actors: within.actors.filter(({ process }) => processes.has(process)) };
}

/** An empty listing may be the answer, or due to a typing error. */
function stateRemark(state: string, { actors }: Known): string {
  const known = new Set(actors.flatMap((actor) => actor.states.flatMap((path) => [path, ...path.split(".")])));
  const guess = known.has(state) ? "" : didYouMean(similarTo(state, [...known]));
  return `note: no such actor is in state "${state}"${guess === "" ? "" : `: ${guess.trim()}`}`;
}

export const inspect: Command = command({
  operands: "[ACTOR|KIND|PROCESS|OBJECT...]",
  summary:
    "List the live actors of managers and agents, or show one of them as the statechart that runs it, with its active states marked.",
  completes: ["actor"],
  options: {
    follow: {
      type: "boolean",
      short: "f",
      help: "Redraw on a terminal as the actors change; elsewhere, print a line for each step",
    },
    process: {
      type: "string",
      multiple: true,
      value: "PROCESS",
      help: "Only actors of this process: its ID, a prefix of it, or its hostname",
      completes: "process",
    },
    state: {
      type: "string",
      multiple: true,
      value: "STATE",
      help: "Only actors in this state, such as serving or serving.connected",
    },
    stuck: { type: "boolean", help: "Only actors with a timer that is overdue by more than 2 s" },
    stately: {
      type: "string",
      value: "URL",
      help: "Send the actors and their steps to Stately's inspector at this WebSocket address until interrupted",
    },
    ...listingOptions,
    "no-trunc": { type: "boolean", help: "Do not truncate output" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const { follow = false, stuck = false, state: states = [], quiet = false } = values;
      if (follow && quiet) throw new UsageError("--follow and --quiet are mutually exclusive: set one of them");
      const format = values.format === "table" ? undefined : values.format;
      const url = values.stately === undefined ? null : inspectorUrl(values.stately);
      if (url !== null && (follow || stuck || quiet || states.length > 0 || format !== undefined))
        throw new UsageError("--stately sends every step: remove --follow, --state, --stuck, --quiet and --format");
      if (follow && format?.startsWith("table ") === true)
        throw new UsageError("--follow prints no table of columns: set --format json or a template");
      const found = await find(client, shell, operands);
      const processes =
        values.process === undefined
          ? null
          : new Set(values.process.flatMap((text) => processesFor(text, found.known)));
      const within = only(found.known, processes);
      const isListed = stuck || states.length > 0 || url !== null || (!follow && (quiet || format !== undefined));
      const actor = isListed ? null : await oneActor(operands, within);

      if (actor !== null) {
        const picture = await pictureOf(client, shell, actor, found);
        if (!follow) {
          printPicture(shell, picture);
          return;
        }
        const process = processes === null ? null : picture.process.id;
        await followActor({ shell, channel: client.channel, picture, process, format });
        return;
      }

      const filter: Filter = { matches: await matcherFor(operands, within), processes, states, stuck };
      if (url !== null) {
        const { showInStately } = await import("./inspect/stately.ts");
        const selection = ActorSelection.create({ processes: [...(processes ?? [])] });
        const isWanted = (process: string, actor: string): boolean =>
          (processes?.has(process) ?? true) && filter.matches(process, actor);
        await showInStately({ shell, channel: client.channel, selection, isWanted, url });
        return;
      }
      if (follow) {
        const selection = ActorSelection.create({ processes: [...(processes ?? [])] });
        const { nameOf } = within.names;
        await followList({ shell, channel: client.channel, selection, filter, nameOf, format });
        return;
      }
      const rows = listed(found.actors, filter, shell.now());
      const isShort = format === undefined && values["no-trunc"] !== true && (shell.width ?? null) !== null;
      printListing(shell, listingOf(rows, within.names.nameOf, isShort), values);
      if (rows.length === 0) for (const state of states) shell.remark(stateRemark(state, within));
      for (const remark of shortcomings(found.actors, found.expected)) shell.remark(`note: ${remark}`);
    }),
});
