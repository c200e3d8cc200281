/** One watcher: hosts a `machines/watch/watch.ts` and carries what it is told to its sink. */
import { watchMachine, type WatchEnding, type WatchEvent } from "../../machines/watch/watch.ts";
import { WatchMessage } from "../../proto/gen/messages.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { Clock, Log, TimerHandle } from "../../runtime/ports.ts";
import { RpcError, Status, type Sink } from "../../runtime/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import { hosted } from "../hosted.ts";
import { answerOf, type Fanout, type Question } from "./watch-fanout.ts";
import type { RecentCommits } from "./watch-recent.ts";
import type { ReplayReader, Replays } from "./watch-replay.ts";

/** Some 10,000 task events: more than any burst that a client in good order leaves unread, and little beside a replica. */
export const watchBufferBytesMax = 16 * 1024 * 1024;
/** Commits that one watcher is told from memory before others have their turn: some milliseconds. */
const sliceCommitsMax = 500;
/** Between two looks at a watcher that has too much before it, in milliseconds. */
const paceMs = 20;
const boundsTimeoutMs = 2_000;
const retryMs = 500;

const watchActor = hosted(watchMachine, [
  "sendGreeting",
  "askLog",
  "awaitVersion",
  "stopAwaitingVersion",
  "sendRecent",
  "awaitRoom",
  "stopAwaitingRoom",
  "joinReplay",
  "leaveReplay",
  "joinLive",
  "leaveLive",
  "endStream",
  "release",
]);

/** What all watchers of a manager share. */
export interface WatchShared {
  readonly host: Host;
  readonly clock: Clock;
  readonly store: Store;
  readonly log: Log;
  readonly recent: RecentCommits;
  readonly live: Fanout;
  readonly replays: Replays;
  /** How many bytes one that replays may have before it. */
  roomBytes(): number;
  /** Those that wait for the replica to come to a version. */
  readonly ahead: Set<WatchStream>;
  /** Called once, when it has ended. */
  onReleased(stream: WatchStream, ending: WatchEnding | null): void;
}

export class WatchStream implements ReplayReader {
  readonly question: Question;
  /** The version up to which it was told everything. */
  position: number;
  /** What it is told is told to others too, in the same bytes. */
  isLive = false;
  readonly #shared: WatchShared;
  readonly #sink: Sink<WatchMessage>;
  #actor: HostedActor<typeof watchMachine> | null = null;
  /** What the actor was told before `start` had returned it. */
  readonly #early: WatchEvent[] = [];
  #oldest = Number.POSITIVE_INFINITY;
  #timer: TimerHandle | null = null;
  #ending: WatchEnding | null = null;
  #isSlow = false;
  #isOver = false;

  constructor(
    shared: WatchShared,
    id: number,
    options: { question: Question; from: number | null; sink: Sink<WatchMessage> },
  ) {
    this.#shared = shared;
    this.question = options.question;
    this.#sink = options.sink;
    const { store, recent, host } = shared;
    const { from } = options;
    this.position = from ?? store.version;
    const input = { from, version: store.version, isRecent: recent.covers(this.position) };
    this.#actor = watchActor.start(host, `watch/${id}`, input, { effects: this.#effects() });
    for (const event of this.#early) this.#send(event);
  }

  get id(): string {
    return this.#actor?.id ?? "";
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  bufferedBytes(): number {
    return this.#sink.bufferedBytes();
  }

  isFull(): boolean {
    return this.bufferedBytes() > this.#shared.roomBytes();
  }

  tell(message: WatchMessage, version: number): void {
    if (this.#isOver || this.#isSlow) return;
    if (this.#sink.bufferedBytes() > watchBufferBytesMax) {
      this.cutOff();
      return;
    }
    this.position = version;
    this.#sink.write(message);
  }

  /** It does not read, or others need the memory more. */
  cutOff(): void {
    if (this.#isSlow) return;
    this.#isSlow = true;
    this.#send({ type: "watcher.slow" });
  }

  onCallerGone(): void {
    this.#send({ type: "caller.gone" });
  }

  onManagerStopped(): void {
    this.#send({ type: "manager.stopped" });
  }

  onJumped(): void {
    this.#send({ type: "replica.jumped" });
  }

  /** The replica has come to a version. */
  onVersion(version: number): void {
    if (version < this.position) return;
    // The commits are in memory, unless the replica jumped there.
    this.#send({ type: "version.reached" });
  }

  onBegun(): void {
    this.#send({ type: "history.begun" });
  }

  onHeld(isHeld: boolean): void {
    this.#send({ type: isHeld ? "history.held" : "history.moved" });
  }

  onReached(): void {
    this.#send({ type: "history.reached" });
  }

  onCompacted(oldest: number): void {
    this.#oldest = oldest;
    this.#send({ type: "history.compacted" });
  }

  onUnreadable(): void {
    this.#send({ type: "history.unreadable" });
  }

  #effects(): Readonly<Record<string, (params: never) => void>> {
    const { ahead, live, replays } = this.#shared;
    return {
      sendGreeting: () => this.#sink.write(WatchMessage.create({})),
      askLog: () => void this.#askLog(),
      awaitVersion: () => void ahead.add(this),
      stopAwaitingVersion: () => void ahead.delete(this),
      sendRecent: () => this.#sendRecent(),
      awaitRoom: () => this.#awaitRoom(),
      stopAwaitingRoom: () => this.#stopTimer(),
      joinReplay: () => replays.join(this),
      leaveReplay: () => replays.leave(this),
      joinLive: () => {
        this.isLive = true;
        live.add(this);
      },
      leaveLive: () => {
        this.isLive = false;
        live.remove(this);
      },
      endStream: ({ ending }: { ending: WatchEnding }) => this.#end(ending),
      release: () => this.#release(),
    };
  }

  /** Until the log answers, or the chart has had enough of waiting. */
  async #askLog(): Promise<void> {
    const { log, clock, ahead } = this.#shared;
    const bounds = await log.bounds(boundsTimeoutMs);
    if (!ahead.has(this)) return;
    if (bounds !== null) this.#send({ type: "log.answered", last: bounds.last });
    else clock.setTimeout(() => void (ahead.has(this) && this.#askLog()), retryMs);
  }

  /** Tells from memory until all is told, the watcher has enough before it, or others should have their turn. */
  #sendRecent(): void {
    const { recent } = this.#shared;
    for (let told = 0; told < sliceCommitsMax; told += 1) {
      if (!recent.covers(this.position)) return this.#send({ type: "recent.outrun" });
      const commit = recent.next(this.position);
      if (commit === undefined) return this.#send({ type: "recent.sent" });
      const message = answerOf(this.question, commit);
      if (message !== null) this.tell(message, commit.version);
      if (this.#isOver) return;
      this.position = commit.version;
      if (this.isFull()) break;
    }
    this.#send({ type: "recent.held" });
  }

  #send(event: WatchEvent): void {
    if (this.#isOver) return;
    if (this.#actor === null) this.#early.push(event);
    else this.#actor.actor.send(event);
  }

  #awaitRoom(): void {
    const { clock } = this.#shared;
    const look = (waitMs: number): void => {
      this.#timer = clock.setTimeout(() => {
        this.#timer = null;
        if (this.bufferedBytes() > this.#shared.roomBytes() / 2) look(paceMs);
        else this.#send({ type: "room.made" });
      }, waitMs);
    };
    look(this.isFull() ? paceMs : 0);
  }

  #stopTimer(): void {
    if (this.#timer !== null) this.#shared.clock.clearTimeout(this.#timer);
    this.#timer = null;
  }

  #end(ending: WatchEnding): void {
    this.#ending = ending;
    // What a watcher does not read would stay here for as long as it likes.
    this.#sink.end(this.#error(ending), ending === "slow" ? "drop" : "send");
  }

  #error(ending: WatchEnding): RpcError {
    const { position } = this;
    const { store, recent } = this.#shared;
    switch (ending) {
      case "future":
        return new RpcError(
          Status.OUT_OF_RANGE,
          `versions are out of order: version ${position} has not happened yet (the log is at ${store.version})`,
        );
      case "compacted": {
        const oldest = Math.min(this.#oldest, recent.base);
        return new RpcError(
          Status.OUT_OF_RANGE,
          `requested index is unavailable due to compaction: what followed version ${position} is no longer kept (the oldest to resume from is ${oldest}): list again, then watch`,
        );
      }
      case "behind":
        return new RpcError(
          Status.UNAVAILABLE,
          `this manager is at version ${store.version} and does not come to ${position}: ask another, or later`,
        );
      case "unreadable":
        return new RpcError(
          Status.UNAVAILABLE,
          `the log and the snapshots that version ${position} needs cannot be read: try again`,
        );
      case "slow":
        return new RpcError(
          Status.RESOURCE_EXHAUSTED,
          `the watcher reads too slowly: more than ${watchBufferBytesMax} bytes wait for it, or for all that are slow; watch again from the last version that you got`,
        );
      case "jumped":
        return new RpcError(
          Status.OUT_OF_RANGE,
          `this manager went on from a snapshot at version ${store.version}: watch again from the last version that you got`,
        );
      case "stopped":
        return new RpcError(Status.UNAVAILABLE, "the manager is being stopped: watch another");
    }
  }

  #release(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stopTimer();
    this.#shared.onReleased(this, this.#ending);
    // Not before the chart has come to its end.
    this.#shared.clock.soon(() => this.#actor?.stop());
  }
}
