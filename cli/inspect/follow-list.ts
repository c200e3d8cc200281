/** `muster inspect -f` of several actors: the table redrawn on a terminal, else a line for each step. */
import { Actors } from "../../proto/feed/actors.ts";
import { ActorSelection } from "../../proto/gen/messages.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import type { Screen, Shell } from "../shell.ts";
import { formatTable } from "../table.ts";
import { follow, type Followed } from "./follow.ts";
import { isInState, listed, listingOf, stuckFor, type Filter } from "./listing.ts";
import { newsPrinter } from "./news-lines.ts";
import { LiveScreen } from "./screen.ts";
import { line, shortDuration, type Line } from "./texts.ts";

interface FollowListOptions {
  readonly shell: Shell;
  readonly channel: RpcChannel;
  /** Everything that the filter can match. */
  readonly selection: ActorSelection;
  readonly filter: Filter;
  readonly nameOf: (actor: string) => string;
  readonly format: string | undefined;
}

/** True for news of the chosen actors. News of a process or the connection concern everything that is shown of it. */
function isWanted(news: Followed, actors: Actors, filter: Filter, wereStuck: ReadonlySet<string>): boolean {
  if (news.kind === "connected" || news.kind === "disconnected") return true;
  const process = typeof news.process === "string" ? news.process : news.process.id;
  if (filter.processes !== null && !filter.processes.has(process)) return false;
  if (news.kind === "dropped" || news.kind === "gap" || news.kind === "lost") return true;
  const id = news.kind === "step" ? news.step.actor : news.kind === "actor" ? news.actor.id : news.actor;
  if (!filter.matches(process, id)) return false;
  const states = news.kind === "step" ? news.step.states : actors.find(process, id)?.states;
  // An actor that has ended has no state any more.
  if (filter.states.length > 0 && states !== undefined && !filter.states.some((state) => isInState(states, state)))
    return false;
  return !filter.stuck || news.kind === "stuck" || wereStuck.has(`${process}\n${id}`);
}

/** `link`: what is wrong with the connection; empty: nothing. */
function screenLines(
  options: FollowListOptions,
  actors: Actors,
  link: string,
  { columns, rows }: Screen,
): readonly Line[] {
  const now = options.shell.now();
  const found = listed(actors, options.filter, now);
  const stuck = found.filter(({ overdueMs }) => overdueMs > 0).length;
  const processes = [...actors.processes.values()];
  const notes = processes.flatMap(({ actors: { isFull }, id, hostname, lost, stale, droppedSteps }) => {
    const name = hostname === "" ? id : `${id} on ${hostname}`;
    if (lost !== "") return [`${name} cannot be watched: ${lost}`];
    if (stale && link === "") return [`${name}: waiting for a snapshot`];
    if (isFull) return [`${name}: too much to show: actors or contexts are missing`];
    return droppedSteps > 0 ? [`${name}: ${droppedSteps} steps left out: they came faster than they were read`] : [];
  });
  const counts = `${found.length} ${found.length === 1 ? "actor" : "actors"}, ${stuck} stuck`;
  const head = [
    line(`${counts}  ${new Date(now).toISOString().slice(11, 19)} UTC`, stuck > 0 ? "alarm" : "title"),
    ...(link === "" ? [] : [line(link, "alarm")]),
    ...notes.map((note) => line(note, "alarm")),
    line(""),
  ];
  // One line for the headings, and one for the actors that have no place.
  const room = Math.max(0, rows - head.length - 2);
  const shown = found.slice(0, room);
  const { headings, rows: cells } = listingOf(shown, options.nameOf, true);
  const table = formatTable(
    headings,
    cells.map((row) => row.cells),
    columns,
  ).split("\n");
  return [
    ...head,
    ...table.map((text, at) => line(text, at === 0 ? "title" : (shown[at - 1]?.overdueMs ?? 0) > 0 ? "alarm" : null)),
    ...(found.length > shown.length ? [line(`… ${found.length - shown.length} more`, "dim")] : []),
  ];
}

export async function followList(options: FollowListOptions): Promise<void> {
  const { shell, channel, filter, selection } = options;
  const actors = new Actors();
  const size = options.format === undefined ? shell.screen?.() : undefined;
  if (size == null) {
    const print = newsPrinter(shell, options.format, true);
    let wereStuck = new Set<string>();
    await follow(shell, channel, selection, {
      actors,
      onNews(news) {
        if (isWanted(news, actors, filter, wereStuck)) print(news, actors);
      },
      onTick() {
        const found = [...actors.processes.values()].flatMap((process) =>
          [...process.actors.values()].filter((actor) => stuckFor(actor, process, shell.now() + process.skewMs) > 0),
        );
        wereStuck = new Set(found.map(({ process, id }) => `${process}\n${id}`));
      },
    });
    return;
  }
  let link = "";
  const screen = new LiveScreen(shell, () => shell.screen?.() ?? size);
  try {
    await follow(shell, channel, ActorSelection.create({ ...selection, withoutSteps: true }), {
      actors,
      onNews(news) {
        if (news.kind === "disconnected")
          link = `connection lost: ${news.reason}; next attempt in ${shortDuration(news.retryMs)}`;
        if (news.kind === "connected") link = "";
      },
      onTick: () => screen.draw((now) => screenLines(options, actors, link, now)),
    });
  } finally {
    screen.close();
  }
}
