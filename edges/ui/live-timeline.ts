/**
 * The time line of a running cluster: an index of what the processes have kept of their last minutes, and of the live feed from
 * then on. It exists while a page is open, and some time longer, for a page that is loaded again.
 *
 * Stages of its feed: connecting → following the live feed, whose messages wait → reading what is kept → adding what waits, and
 * each message as it comes; after a failure again, from the beginning.
 *
 * LT1: unknown steps leave a gap, such as those of a time without a feed.
 * LT2: between what is kept and the live feed there is no gap: what is kept is read once the live feed has begun.
 * LT3: bytes of a process that cannot be read end neither the time line nor the manager: it begins again with an empty index.
 * LT4: times of agents that are after the managers' present are taken for it, as far as `holdMs` allows.
 */
import { scanFeed, scanPart } from "../../proto/feed-scan.ts";
import {
  ActorFeed,
  ActorSelection,
  InspectionService,
  RecentActorsRequest,
  RecordedSpan,
  TimelineService,
  WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import { backoffMs, type Backoff } from "../../lib/backoff.ts";
import { everyTime, TimelineIndex, type TimeBounds } from "../../runtime/recording/timeline-index.ts";
import type { Subscription } from "../../runtime/ports/index.ts";
import { withLocal, type CallMethod, type LocalServices, type UiBackend, type UiSession } from "./backend.ts";
import { timelineLimits } from "./limits.ts";
import { timelineServices } from "./timeline-services.ts";
import { WaitingFeed } from "./waiting-feed.ts";

const { Recent, Watch } = InspectionService.methods;
const { Steps } = TimelineService.methods;
const selection = ActorSelection.create();
/** Until the manager is back: soon at first, and often enough for one who waits. */
const reconnecting: Backoff = { stepMs: 500, msMax: 10_000 };
const managerPrefix = "manager-";
/** Fields of RecordingPart. */
const Field = { feed: 2, span: 5 } as const;

interface LiveTimelineOptions {
  /** A backend of its own, which gives the whole feed. */
  readonly connect: () => Promise<UiBackend>;
  readonly limits?: { readonly [Name in keyof typeof timelineLimits]: number };
}

export class LiveTimeline {
  readonly #connect: () => Promise<UiBackend>;
  readonly #limits: NonNullable<LiveTimelineOptions["limits"]>;
  readonly #services: LocalServices;
  #index: TimelineIndex;
  #pages = 0;
  #following: AbortController | null = null;
  #forgetting: NodeJS.Timeout | null = null;
  #settling: NodeJS.Timeout | null = null;
  /** Sequence number of each process's last message. */
  readonly #sequences = new Map<string, number>();
  /** Milliseconds by which the managers' clocks are ahead of this machine's; those of the one that is most. Null: none is known. */
  #aheadMs: number | null = null;
  /** Questions that wait for steps. */
  readonly #waiters = new Set<(isOver?: boolean) => void>();
  /** LT2. Null: each message is added as it comes. */
  #waiting: WaitingFeed | null = null;
  /** Aborted when a message cannot be read. LT3 */
  #attempt = new AbortController();

  constructor({ connect, limits = timelineLimits }: LiveTimelineOptions) {
    this.#connect = connect;
    this.#limits = limits;
    this.#index = this.#newIndex();
    const paths = Object.values(TimelineService.methods).map(({ path }) => path);
    const answer: CallMethod = async (method, request, ...rest) => {
      if (method === Steps.path) await this.#settled(Steps.request.decode(request).seenMs);
      return (timelineServices(this.#index).get(method) as CallMethod)(method, request, ...rest);
    };
    this.#services = new Map(paths.map((path) => [path, answer]));
  }

  /** The same session, whose Timeline calls are answered from the index, which is kept until the session's end. */
  session({ hello, backend }: UiSession): UiSession {
    const hold = this.#hold();
    const both = withLocal(backend, this.#services);
    return {
      hello,
      backend: {
        ...both,
        close() {
          hold.unsubscribe();
          both.close?.();
        },
      },
    };
  }

  /** Ends the feed. */
  stop(): void {
    this.#following?.abort();
    for (const look of this.#waiters) look(true);
    for (const timer of [this.#forgetting, this.#settling]) if (timer !== null) clearTimeout(timer);
  }

  #newIndex(): TimelineIndex {
    const { indexBytesMax, holdMs, recentMs } = this.#limits;
    const bounds = (): TimeBounds => {
      const now = Date.now() + (this.#aheadMs ?? 0);
      return this.#aheadMs === null ? everyTime : { fromMs: now - 2 * recentMs, toMs: now + holdMs };
    };
    return new TimelineIndex({ bytesMax: indexBytesMax, holdMs, isRecording: false, bounds });
  }

  /** The managers' clocks count: an agent's may be wrong, and `muster ui` runs on any machine. */
  #noteClock(bytes: Uint8Array): void {
    const { process, atMs } = scanFeed(bytes);
    if (process.startsWith(managerPrefix))
      this.#aheadMs = Math.max(this.#aheadMs ?? Number.NEGATIVE_INFINITY, atMs - Date.now());
  }

  #hold(): Subscription {
    this.#pages += 1;
    if (this.#forgetting !== null) clearTimeout(this.#forgetting);
    this.#forgetting = null;
    if (this.#following === null) {
      this.#following = new AbortController();
      void this.#follow(this.#following.signal);
    }
    return {
      unsubscribe: () => {
        this.#pages -= 1;
        if (this.#pages > 0) return;
        this.#forgetting = setTimeout(() => this.#forget(), this.#limits.lingerMs).unref();
      },
    };
  }

  #forget(): void {
    this.stop();
    this.#following = null;
    this.#waiting = null;
    this.#reset();
  }

  #reset(): void {
    this.#sequences.clear();
    this.#index = this.#newIndex();
  }

  /** LT3. `change` runs the index, or a decoder, on bytes of processes. */
  #guard(change: () => void): void {
    try {
      change();
      for (const look of this.#waiters) look();
    } catch {
      // The index may have taken a part of the message.
      this.#reset();
      this.#attempt.abort();
    }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for (let failures = 1; !signal.aborted; failures += 1) {
      let backend: UiBackend | null = null;
      const attempt = new AbortController();
      this.#attempt = attempt;
      const isOver = AbortSignal.any([signal, attempt.signal]);
      try {
        backend = await this.#connect();
        // Otherwise it would disturb a later feed of this time line.
        isOver.throwIfAborted();
        const before = this.#sequences.size;
        const waiting = new WaitingFeed(this.#limits);
        this.#waiting = waiting;
        const watching = this.#watch(backend.call, isOver);
        await Promise.race([waiting.hasBegun, watching]);
        isOver.throwIfAborted();
        await this.#read(backend.call, AbortSignal.any([isOver, waiting.isFull]));
        isOver.throwIfAborted();
        this.#waiting = null;
        this.#guard(() => {
          for (const bytes of waiting.messages) this.#append(bytes);
          this.#index.settle();
        });
        await watching;
        if (this.#sequences.size > before) failures = 0;
      } catch {
        // The page says that its own connection has ended.
      }
      backend?.close?.();
      if (signal.aborted) return;
      this.#waiting = null;
      if (attempt.signal.aborted) this.#reset();
      else this.#guard(() => this.#lose());
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, backoffMs(reconnecting, failures)).unref();
        signal.addEventListener("abort", () => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** Resolves when the index has the steps up to a moment in their order, or at a limit. */
  async #settled(ms: number): Promise<void> {
    if (ms === 0 || this.#index.isSettled(ms)) return;
    await new Promise<void>((resolve) => {
      const look = (isOver = false): void => {
        if (!isOver && !this.#index.isSettled(ms)) return;
        clearTimeout(timer);
        this.#waiters.delete(look);
        resolve();
      };
      const timer = setTimeout(look, this.#limits.seenMsMax, true);
      this.#waiters.add(look);
    });
  }

  /** Reads the steps that the processes have kept. A manager of an earlier version keeps nothing. */
  async #read(call: CallMethod, signal: AbortSignal): Promise<void> {
    const { recentMs, recentBytesMax } = this.#limits;
    const feeds: { readonly atMs: number; readonly bytes: Uint8Array }[] = [];
    /** A process's feeds stay in their order, although its clock may be set back. */
    const newestMs = new Map<string, number>();
    let bytes = 0;
    const enough = new AbortController();
    const take = (message: Uint8Array): void => {
      const part = scanPart(message);
      bytes += message.length;
      if (bytes > recentBytesMax) enough.abort();
      else if (part?.field === Field.span) this.#index.appendSpan(RecordedSpan.decode(part.value));
      else if (part?.field === Field.feed) {
        const feed = scanFeed(part.value);
        const atMs = Math.max(feed.atMs, newestMs.get(feed.process) ?? 0);
        newestMs.set(feed.process, atMs);
        feeds.push({ atMs, bytes: new Uint8Array(part.value) });
      }
    };
    const write = (message: Uint8Array): null => {
      this.#guard(() => take(message));
      return null;
    };
    const request = RecentActorsRequest.create({ selection, sinceMs: recentMs });
    const reading = AbortSignal.any([signal, enough.signal]);
    await call(Recent.path, Recent.request.encode(request), { write }, { signal: reading, traceparent: "" }).catch(
      () => undefined,
    );
    feeds.sort((a, b) => a.atMs - b.atMs);
    this.#guard(() => {
      for (const feed of feeds) this.#append(feed.bytes);
      this.#index.settle();
    });
  }

  #watch(call: CallMethod, signal: AbortSignal): Promise<void> {
    const write = (message: Uint8Array): null => {
      if (signal.aborted) return null;
      const bytes = new Uint8Array(message);
      this.#guard(() => {
        this.#noteClock(bytes);
        if (this.#waiting === null) this.#append(bytes);
        else this.#waiting.add(bytes);
      });
      // Steps wait for earlier ones of other processes only as long as something arrives.
      if (this.#settling !== null) clearTimeout(this.#settling);
      this.#settling = setTimeout(() => this.#guard(() => this.#index.settle()), this.#limits.holdMs).unref();
      return null;
    };
    const request = Watch.request.encode(WatchActorsRequest.create({ selection }));
    return call(Watch.path, request, { write }, { signal, traceparent: "" });
  }

  #append(bytes: Uint8Array): void {
    const { process, sequence } = scanFeed(bytes);
    this.#sequences.set(process, sequence);
    this.#index.appendEncoded(bytes);
  }

  /** LT1 */
  #lose(): void {
    const atMs = Date.now();
    for (const [process, sequence] of this.#sequences)
      this.#append(
        ActorFeed.encode(ActorFeed.create({ process, sequence: sequence + 1, atMs, lost: "the feed ended" })),
      );
    this.#index.settle();
  }
}
