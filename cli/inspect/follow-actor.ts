/** `muster inspect -f` of one actor: its picture redrawn on a terminal, else the picture once and a line for each step. */
import { Actors, type Actor } from "../../proto/feed/actors.ts";
import { ActorSelection, type ActorStep } from "../../proto/gen/messages.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import type { Screen, Shell } from "../shell.ts";
import { actorLines, type ActorPicture } from "./drawing.ts";
import { follow, type Followed } from "./follow.ts";
import { newsPrinter } from "./news-lines.ts";
import { joinedSteps, stepsMax } from "./recent.ts";
import { LiveScreen } from "./screen.ts";
import { line, rendered, shortDuration, type Line } from "./texts.ts";

interface FollowActorOptions {
  readonly shell: Shell;
  readonly channel: RpcChannel;
  /** As it is known at the start. */
  readonly picture: ActorPicture;
  /** Only in this process; null: wherever an actor with its id runs, since a session moves to another manager. */
  readonly process: string | null;
  readonly format: string | undefined;
}

export async function followActor(options: FollowActorOptions): Promise<void> {
  const { shell, channel, format } = options;
  const actors = new Actors();
  const { id } = options.picture.actor;
  const selection = ActorSelection.create({
    processes: options.process === null ? [] : [options.process],
    actors: [id],
  });
  let { picture } = options;
  const live: ActorStep[] = [];
  let link = "";

  /** Where the actor runs now: in the process that it was in, or else in another one. */
  function placed(): Actor | undefined {
    const same = actors.find(picture.process.id, id);
    if (same !== undefined) return same;
    for (const process of actors.processes.values()) {
      const found = process.stale ? undefined : process.actors.get(id);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  function learn(news: Followed): void {
    if (news.kind === "step" && news.step.actor === id) {
      live.push(news.step);
      if (live.length > stepsMax) live.shift();
    }
    if (news.kind === "disconnected")
      link = `connection lost: ${news.reason}; next attempt in ${shortDuration(news.retryMs)}`;
    if (news.kind === "connected") link = "";
    const actor = placed();
    const process = actors.processes.get(actor?.process ?? picture.process.id);
    // Before its first snapshot, nothing is known of the process.
    const ended = actor === undefined && process?.stale === false;
    picture = { ...picture, actor: actor ?? picture.actor, process: process ?? picture.process, ended };
  }

  function now(): ActorPicture {
    const skewMs = actors.processes.get(picture.process.id)?.skewMs ?? 0;
    return { ...picture, nowMs: shell.now() + skewMs, steps: joinedSteps(picture.steps, live) };
  }

  const size = format === undefined ? shell.screen?.() : undefined;
  if (size == null) {
    const print = newsPrinter(shell, format, false);
    let isPrinted = format !== undefined;
    await follow(shell, channel, selection, {
      actors,
      onNews(news) {
        const before = picture.process.id;
        learn(news);
        // As the first snapshot shows it, so that no step is missing between the picture and the lines.
        if (!isPrinted && news.kind === "actor") {
          isPrinted = true;
          printPicture(shell, now());
          return;
        }
        if (picture.process.id !== before && format === undefined)
          shell.print(`${new Date(shell.now()).toISOString()} ${id} is now in ${picture.process.id}`);
        print(news, actors);
      },
      onTick: () => undefined,
    });
    return;
  }
  const drawn = ({ columns, rows }: Screen): readonly Line[] => {
    const head = link === "" ? [] : [line(link, "alarm")];
    return [...head, ...actorLines({ ...now(), width: columns, height: rows - head.length })];
  };
  const screen = new LiveScreen(shell, () => shell.screen?.() ?? size);
  try {
    screen.draw(drawn);
    await follow(shell, channel, selection, {
      actors,
      onNews: learn,
      onTick: () => screen.draw(drawn),
    });
  } finally {
    screen.close();
  }
}

export function printPicture(shell: Shell, picture: ActorPicture): void {
  const size = shell.screen?.() ?? null;
  const paper = { width: size?.columns ?? null, colours: size?.colours ?? false };
  for (const spans of actorLines({ ...picture, width: paper.width, height: null })) shell.print(rendered(spans, paper));
}
