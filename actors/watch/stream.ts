/** One watcher: hosts `machines/watch/watch.machine.ts` and writes its events to the sink. */
import { watchMachine, type WatchEnding, type WatchEvent } from "../../machines/watch/watch.machine.ts";
import { WatchMessage } from "../../proto/gen/messages.ts";
import type { EffectsOf, Host, HostedActor } from "../../runtime/host.ts";
import type { Clock, Log, TimerHandle } from "../../runtime/ports/index.ts";
import { RpcError, Status, type Sink } from "../../runtime/ports/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import { answerOf, type Fanout, type Question } from "./fanout.ts";
import type { RecentCommits } from "./recent.ts";
import type { ReplayReader, Replays } from "./replay.ts";

/** About 10,000 task events: more than a healthy client leaves unread in any burst, and little beside a replica. */
export const watchBufferBytesMax = 16 * 1024 * 1024;
/** Commits sent to one watcher from memory before the others get their turn: a few milliseconds. */
const sliceCommitsMax = 500;
/** Interval of checking a watcher whose buffer is full, in milliseconds. */
const paceMs = 20;
const boundsTimeoutMs = 2_000;
const retryMs = 500;

/** State shared by all watchers of a manager. */
export interface WatchShared {
  readonly host: Host;
  readonly clock: Clock;
  readonly store: Store;
  readonly log: Log;
  readonly recent: RecentCommits;
  readonly live: Fanout;
  readonly replays: Replays;
  /** Maximum unread bytes of a watcher during a replay. */
  roomBytes(): number;
  /** Watchers waiting for the replica to reach a version. */
  readonly ahead: Set<WatchStream>;
  /** Called once, when it has ended. */
  onReleased(stream: WatchStream, ending: WatchEnding | null): void;
}

export class WatchStream implements ReplayReader {
  readonly question: Question;
  /** The version up to which it has received everything. */
  position: number;
  /** Its messages are shared with other watchers, in the same bytes. */
  isLive = false;
  readonly #shared: WatchShared;
  readonly #sink: Sink<WatchMessage>;
  #actor: HostedActor<typeof watchMachine> | null = null;
  /** Events sent before `start` had returned the actor. */
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
    this.#actor = host.start(watchMachine, `watch/${id}`, input, { effects: this.#effects() });
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

  /** To be called when it does not read, or others need the memory more. */
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

  /** To be called when the replica reaches a version. */
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

  #effects(): EffectsOf<typeof watchMachine> {
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
      endStream: ({ ending }) => this.#end(ending),
      release: () => this.#release(),
    };
  }

  /** Asks until the log answers or the chart stops waiting. */
  async #askLog(): Promise<void> {
    const { log, clock, ahead } = this.#shared;
    const bounds = await log.bounds(boundsTimeoutMs);
    if (!ahead.has(this)) return;
    if (bounds !== null) this.#send({ type: "log.answered", last: bounds.last });
    else clock.setTimeout(() => void (ahead.has(this) && this.#askLog()), retryMs);
  }

  /** Sends from memory until it has everything, its buffer is full, or others should have their turn. */
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
    else this.#actor.send(event);
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
    // Unread messages would otherwise stay in memory for as long as the watcher likes.
    this.#sink.end(this.#error(ending), ending === "slow" ? "drop" : "send");
  }

  #error(ending: WatchEnding): RpcError {
    const { position } = this;
    const { store, recent } = this.#shared;
    switch (ending) {
      case "future":
        return new RpcError(
          Status.OUT_OF_RANGE,
          `versions are out of order: version ${position} does not exist yet (the log is at ${store.version})`,
        );
      case "compacted": {
        const oldest = Math.min(this.#oldest, recent.base);
        return new RpcError(
          Status.OUT_OF_RANGE,
          `requested index is unavailable due to compaction: version ${position} is older than the retained history (oldest: ${oldest}): list again, then watch`,
        );
      }
      case "behind":
        return new RpcError(
          Status.UNAVAILABLE,
          `this manager is at version ${store.version} and does not reach ${position}: try another manager, or try later`,
        );
      case "unreadable":
        return new RpcError(
          Status.UNAVAILABLE,
          `cannot read the log and the snapshots needed for version ${position}: try again`,
        );
      case "slow":
        return new RpcError(
          Status.RESOURCE_EXHAUSTED,
          `the watcher reads too slowly: more than ${watchBufferBytesMax} bytes are unread, or too many for all slow watchers together; watch again from the last version that you received`,
        );
      case "jumped":
        return new RpcError(
          Status.OUT_OF_RANGE,
          `this manager continued from a snapshot at version ${store.version}: watch again from the last version that you received`,
        );
      case "stopped":
        return new RpcError(Status.UNAVAILABLE, "the manager is stopping: watch another");
    }
  }

  #release(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stopTimer();
    this.#shared.onReleased(this, this.#ending);
    // Deferred until the chart has reached its end.
    this.#shared.clock.soon(() => this.#actor?.stop());
  }
}
