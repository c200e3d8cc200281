/**
 * Applies records of the log to a replica of an earlier state, up to a version or until its owner stops it. Records are queued
 * here and applied a few milliseconds at a time: applying them as fast as the log delivers would block everything else in this
 * process.
 *
 * R1: the queue is bounded: when it is full, reading stops and resumes later from there.
 * R2: after a slice, the next one waits for as long as the slice took, as `stepInTurn` does.
 */
import type { Clock, Log, LogReader, Subscription, TimerHandle } from "../../runtime/ports/index.ts";
import { LogBreak } from "../../runtime/store/log-break.ts";

/** Maximum silence of the log, in milliseconds. */
const silentMsMax = 5_000;
/** Default of `ReplayParts.waitingBytesMax`: many times what one slice applies. */
const waitingBytesMaxDefault = 4 * 1024 * 1024;
/** Bytes that the log sends ahead: a millisecond or two of opening and queueing. */
const aheadBytes = 32 * 1024;
/** Length of one slice: this many milliseconds, or this many records where the clock stands still. */
const sliceMs = 5;
const sliceRecordsMax = 250;

/**
 * `gap`: the next record is no longer retained. `broken`: the log is inconsistent. `silent`: it does not answer. `stopped`:
 * `isEnough` returned true.
 */
type Replayed = "reached" | "gap" | "broken" | "silent" | "stopped";

/** A replica, or another taker of records that follow `version`. */
interface RecordTaker {
  readonly version: number;
  /** Throws LogBreak. */
  apply(sequence: number, data: Uint8Array): unknown;
}

interface ReplayParts {
  readonly log: Log;
  readonly clock: Clock;
  /** Maximum bytes of queued records, which a stop discards; reading resumes when a quarter is left. Default 4 MiB. */
  readonly waitingBytesMax?: number;
}

/** Applies the records up to and including `to`. `isEnough` is called after each. */
export function replayTo(
  parts: ReplayParts,
  replica: RecordTaker,
  to: number,
  isEnough: () => boolean = () => false,
): Promise<Replayed> {
  if (replica.version >= to) return Promise.resolve("reached");
  return new Promise((resolve) => new Replaying(parts, replica, to, isEnough, resolve).start());
}

class Replaying {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #waitingBytesMax: number;
  readonly #replica: RecordTaker;
  readonly #to: number;
  readonly #isEnough: () => boolean;
  readonly #resolve: (outcome: Replayed) => void;
  /** Queued from `#from` on; the others are applied. */
  #waiting: Uint8Array[] = [];
  #from = 0;
  #bytes = 0;
  /** The next sequence to read from the log. */
  #next: number;
  /** Stops the current read; null when there is none. */
  #close: (() => void) | null = null;
  #slice: TimerHandle | null = null;
  #silence: TimerHandle | null = null;
  #seen: number;
  #hasGap = false;
  #isOver = false;

  constructor(
    { log, clock, waitingBytesMax = waitingBytesMaxDefault }: ReplayParts,
    replica: RecordTaker,
    to: number,
    isEnough: () => boolean,
    resolve: (outcome: Replayed) => void,
  ) {
    this.#log = log;
    this.#clock = clock;
    this.#waitingBytesMax = waitingBytesMax;
    this.#replica = replica;
    this.#to = to;
    this.#isEnough = isEnough;
    this.#resolve = resolve;
    this.#next = replica.version + 1;
    this.#seen = replica.version;
  }

  start(): void {
    this.#silence = this.#clock.setTimeout(() => this.#look(), silentMsMax);
    this.#read();
  }

  #read(): void {
    /** False once this read must deliver nothing more. */
    let isOpen = true;
    let reading: Subscription | null = null;
    const close = (): void => {
      if (!isOpen) return;
      isOpen = false;
      this.#close = null;
      // Deferred: not during a delivery, and `read` may deliver before it has returned.
      this.#clock.soon(() => reading?.unsubscribe());
    };
    this.#close = close;
    const reader: LogReader = {
      onRecord: (sequence, data) => {
        if (!isOpen || sequence !== this.#next) return;
        this.#next += 1;
        this.#waiting.push(data);
        this.#bytes += data.length;
        this.#work();
        if (this.#bytes > this.#waitingBytesMax || sequence === this.#to) close();
      },
      onCaughtUp: () => {},
      onGap: () => {
        if (!isOpen) return;
        this.#hasGap = true;
        close();
        this.#work();
      },
    };
    reading = this.#log.read(this.#next, reader, aheadBytes);
  }

  /** R2 */
  #work(pauseMs = 0): void {
    this.#slice ??= this.#clock.setTimeout(() => {
      this.#slice = null;
      this.#apply();
    }, pauseMs);
  }

  #apply(): void {
    if (this.#isOver) return;
    const begun = this.#clock.monotonic();
    for (let count = 0; count < sliceRecordsMax && this.#from < this.#waiting.length; count += 1) {
      const data = this.#waiting[this.#from] as Uint8Array;
      this.#from += 1;
      this.#bytes -= data.length;
      try {
        this.#replica.apply(this.#replica.version + 1, data);
      } catch (error) {
        if (!(error instanceof LogBreak)) throw error;
        this.#end("broken");
        return;
      }
      if (this.#replica.version >= this.#to) {
        this.#end("reached");
        return;
      }
      if (this.#isEnough()) {
        this.#end("stopped");
        return;
      }
      if (this.#clock.monotonic() - begun >= sliceMs) break;
    }
    if (this.#from > sliceRecordsMax && this.#from > this.#waiting.length / 2) {
      this.#waiting = this.#waiting.slice(this.#from);
      this.#from = 0;
    }
    const isEmpty = this.#from === this.#waiting.length;
    if (!isEmpty) this.#work(this.#clock.monotonic() - begun);
    else if (this.#hasGap) this.#end("gap");
    const wantsMore = this.#close === null && !this.#hasGap && this.#next <= this.#to;
    if (wantsMore && this.#bytes < this.#waitingBytesMax / 4) this.#read();
  }

  #look(): void {
    if (this.#isEnough()) this.#end("stopped");
    else if (this.#replica.version === this.#seen) this.#end("silent");
    else {
      this.#seen = this.#replica.version;
      this.#silence = this.#clock.setTimeout(() => this.#look(), silentMsMax);
    }
  }

  #end(outcome: Replayed): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const timer of [this.#slice, this.#silence]) if (timer !== null) this.#clock.clearTimeout(timer);
    this.#close?.();
    this.#waiting = [];
    this.#resolve(outcome);
  }
}
