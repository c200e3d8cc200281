/** `muster inspect --stately`: sends the actors and each of their steps to Stately's inspector until interrupted. */
import { Actors } from "../../proto/feed/actors.ts";
import type { ActorSelection } from "../../proto/gen/messages.ts";
import { UserError } from "../../lib/user-error.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import { allCharts } from "../charts.ts";
import { xstateConfigOf } from "../charts/xstate.ts";
import type { Shell } from "../shell.ts";
import { follow, type Followed } from "./follow.ts";
import { connectToStately, type StatelyLink } from "./stately-link.ts";
import { StatelyMessages, type StatelyNews } from "./stately-messages.ts";

interface StatelyOptions {
  readonly shell: Shell;
  readonly channel: RpcChannel;
  readonly selection: ActorSelection;
  /** Whether an actor is to be shown. */
  readonly isWanted: (process: string, actor: string) => boolean;
  readonly url: URL;
}

const isNews = (news: Followed): news is StatelyNews =>
  news.kind === "actor" || news.kind === "step" || news.kind === "ended";

const actorOf = (news: StatelyNews): string =>
  news.kind === "actor" ? news.actor.id : news.kind === "step" ? news.step.actor : news.actor;

/** Leaves messages out while the inspector is too slow, then sends the present state of the actors concerned. */
export class StatelySender {
  readonly #shell: Pick<Shell, "now" | "remark">;
  readonly #actors: Actors;
  readonly #messages: StatelyMessages;
  readonly #link: Pick<StatelyLink, "send" | "isFull">;
  /** Whose newest state was left out: by process, actors. */
  #behind = new Map<string, Set<string>>();
  #leftOut = 0;

  /** `actors`: the model that the news were applied to. */
  constructor(
    shell: Pick<Shell, "now" | "remark">,
    actors: Actors,
    messages: StatelyMessages,
    link: Pick<StatelyLink, "send" | "isFull">,
  ) {
    this.#shell = shell;
    this.#actors = actors;
    this.#messages = messages;
    this.#link = link;
  }

  send(news: StatelyNews): void {
    for (const message of this.#messages.of(news, this.#shell.now())) {
      if (this.#link.send(message)) continue;
      this.#leftOut += 1;
      const ids = this.#behind.get(news.process.id) ?? new Set();
      this.#behind.set(news.process.id, ids.add(actorOf(news)));
    }
  }

  catchUp(): void {
    if (this.#leftOut === 0 || this.#link.isFull) return;
    this.#shell.remark(`note: the inspector was too slow: ${this.#leftOut} messages were left out`);
    this.#leftOut = 0;
    const behind = this.#behind;
    this.#behind = new Map();
    for (const [id, ids] of behind) {
      const process = this.#actors.processes.get(id);
      if (process === undefined) continue;
      for (const actor of ids) {
        const known = process.actors.get(actor);
        this.#messages.forget(id, actor);
        this.send(known === undefined ? { kind: "ended", process, actor } : { kind: "actor", process, actor: known });
      }
    }
  }
}

/** The configs of all charts, as `definition` of messages. */
export async function statelyMessages(): Promise<StatelyMessages> {
  const configs = new Map(
    (await allCharts()).map(({ machine, summary }) => [machine.id, JSON.stringify(xstateConfigOf(machine, summary))]),
  );
  return new StatelyMessages((machine) => configs.get(machine));
}

/** Throws UserError when the inspector cannot be reached, or goes away. */
export async function showInStately({ shell, channel, selection, isWanted, url }: StatelyOptions): Promise<void> {
  const messages = await statelyMessages();
  const link = await connectToStately(url);
  shell.remark(`sending actors to ${url.href} until interrupted`);
  const actors = new Actors();
  const sender = new StatelySender(shell, actors, messages, link);
  const follower = {
    actors,
    onNews(news: Followed): void {
      if (isNews(news)) {
        if (isWanted(news.process.id, actorOf(news))) sender.send(news);
      } else if (news.kind === "lost") shell.remark(`note: ${news.process.id} cannot be watched: ${news.reason}`);
      else if (news.kind === "disconnected") shell.remark(`connection lost: ${news.reason}`);
    },
    onTick: () => sender.catchUp(),
  };
  const closed = link.closed.then((reason) => new UserError(`Stately's inspector closed the connection: ${reason}`));
  try {
    await follow(shell, channel, selection, follower, closed);
  } finally {
    link.close();
  }
}
