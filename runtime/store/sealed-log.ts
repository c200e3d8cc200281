/**
 * The log as everything above sees it: records are sealed when appended and opened when read. Records from before the first
 * data key are delivered unchanged (Y3).
 *
 * Z1: a record that cannot be opened for lack of its key pauses the reading, which resumes when the key arrives. The record is
 *     read again from time to time: if the name of its key was damaged in transit, that key never arrives.
 * Z2: a record that does not open although its key is present, or is unsealed where it must not be, is delivered as a record
 *     that R1 rejects.
 * Z3: a record that does not open is read once more first: a record of this cluster that was damaged in transit must not count
 *     as a foreign message, which readers skip.
 */
import { LogRecord, Sealed } from "../../proto/gen/messages.ts";
import type {
  AppendOutcome,
  Clock,
  Log,
  LogReader,
  LogSpace,
  Random,
  Subscription,
  TimerHandle,
} from "../ports/index.ts";
import type { Keyring } from "./keyring.ts";
import { open, seal, sealOverheadBytes, type SealedFor } from "./seal.ts";

/** Z2: its checksum does not match its transaction. */
const refused = LogRecord.encode(LogRecord.create({ sealed: Sealed.create({}) }));

function place(sequence: number): SealedFor {
  return { purpose: "record", place: String(sequence) };
}

/** Tag of LogRecord.sealed: field 3, length-delimited. A sealed record has no other field, so it is the first byte. */
const sealedTag = (3 << 3) | 2;

/** Milliseconds between two reads of a record whose key is missing: reads one record, on a manager that can do nothing else. */
const missingRetryMs = 5_000;

export class SealedLog implements Log {
  readonly recordBytesMax: number;
  readonly #log: Log;
  readonly #keyring: Keyring;
  readonly #random: Random;
  readonly #clock: Clock;

  constructor(log: Log, keyring: Keyring, random: Random, clock: Clock) {
    this.#log = log;
    this.#keyring = keyring;
    this.#random = random;
    this.#clock = clock;
    this.recordBytesMax = log.recordBytesMax - sealOverheadBytes;
  }

  append(data: Uint8Array, expectedLast: number): Promise<AppendOutcome> {
    let sealed: Sealed;
    try {
      const key = this.#keyring.forAppend(expectedLast);
      sealed = seal(key, data, this.#random, place(expectedLast + 1), this.#keyring.sealing);
    } catch (error) {
      return Promise.resolve({ kind: "refused", reason: `the data key could not be saved: ${String(error)}` });
    }
    return this.#log.append(LogRecord.encode(LogRecord.create({ sealed })), expectedLast);
  }

  read(fromSequence: number, reader: LogReader, aheadBytes?: number): Subscription {
    return new SealedReading(this.#log, this.#keyring, this.#clock, { fromSequence, reader, aheadBytes });
  }

  bounds(timeoutMs: number): Promise<{ readonly first: number; readonly last: number } | null> {
    return this.#log.bounds(timeoutMs);
  }

  bytes(timeoutMs: number): Promise<number | null> {
    return this.#log.bytes(timeoutMs);
  }

  space(): LogSpace {
    return this.#log.space();
  }

  purgeBefore(sequence: number): Promise<void> {
    return this.#log.purgeBefore(sequence);
  }
}

class SealedReading implements Subscription {
  readonly #log: Log;
  readonly #keyring: Keyring;
  readonly #clock: Clock;
  readonly #reader: LogReader;
  readonly #aheadBytes: number | undefined;
  #next: number;
  #reading: Subscription | null = null;
  /** Counts the readings of the log below, so that an abandoned one is ignored. */
  #turn = 0;
  #waiting: Subscription | null = null;
  #retry: TimerHandle | null = null;
  /** The record that did not open and is being read once more; 0: none. Z3 */
  #doubted = 0;
  /** The key of the record that cannot be opened; empty: none. */
  #waitsFor = "";
  #isActive = true;

  constructor(
    log: Log,
    keyring: Keyring,
    clock: Clock,
    {
      fromSequence,
      reader,
      aheadBytes,
    }: Readonly<{ fromSequence: number; reader: LogReader; aheadBytes: number | undefined }>,
  ) {
    this.#log = log;
    this.#keyring = keyring;
    this.#clock = clock;
    this.#next = fromSequence;
    this.#reader = reader;
    this.#aheadBytes = aheadBytes;
    this.#begin();
  }

  unsubscribe(): void {
    this.#isActive = false;
    this.#turn += 1;
    // This reading no longer waits for it; another one that does reports it again.
    if (this.#waitsFor !== "") this.#keyring.clearMissing(this.#waitsFor);
    this.#endWait();
    this.#reading?.unsubscribe();
  }

  #begin(): void {
    const turn = (this.#turn += 1);
    const isCurrent = (): boolean => this.#isActive && this.#turn === turn;
    const below: LogReader = {
      onRecord: (sequence, data) => {
        if (!isCurrent()) return;
        const opened = openRecord(this.#keyring, sequence, data);
        if (opened.kind === "missing") {
          this.#wait(opened.keyId);
          return;
        }
        if (opened.data === refused && this.#doubted !== sequence) {
          this.#doubted = sequence;
          this.#reading?.unsubscribe();
          this.#reading = null;
          this.#begin();
          return;
        }
        this.#next = sequence + 1;
        this.#reader.onRecord(sequence, opened.data);
      },
      onCaughtUp: (sequence) => {
        if (isCurrent()) this.#reader.onCaughtUp(sequence);
      },
      onGap: (firstKept) => {
        if (isCurrent()) this.#reader.onGap(firstKept);
      },
      onShorter: (last) => {
        if (isCurrent()) this.#reader.onShorter?.(last);
      },
    };
    const reading = this.#log.read(this.#next, below, this.#aheadBytes);
    // It may have delivered, and been abandoned, before it returned.
    if (isCurrent()) this.#reading = reading;
    else reading.unsubscribe();
  }

  /** Z1 */
  #wait(keyId: string): void {
    this.#turn += 1;
    this.#reading?.unsubscribe();
    this.#reading = null;
    const goOn = (): void => {
      this.#endWait();
      this.#keyring.clearMissing(keyId);
      this.#begin();
    };
    this.#waiting = this.#keyring.onChange(() => {
      if (this.#keyring.find(keyId) !== undefined) goOn();
    });
    this.#retry = this.#clock.setTimeout(goOn, missingRetryMs);
    this.#waitsFor = keyId;
    this.#keyring.reportMissing(keyId, "record");
  }

  #endWait(): void {
    this.#waitsFor = "";
    this.#waiting?.unsubscribe();
    this.#waiting = null;
    if (this.#retry !== null) this.#clock.clearTimeout(this.#retry);
    this.#retry = null;
  }
}

type Opened =
  | { readonly kind: "open"; readonly data: Uint8Array }
  | { readonly kind: "missing"; readonly keyId: string };

/** The record as it was before sealing. */
function openRecord(keyring: Keyring, sequence: number, data: Uint8Array): Opened {
  if (data[0] !== sealedTag) return { kind: "open", data: sequence <= keyring.plainThrough ? data : refused };
  let sealed: Sealed | null;
  try {
    ({ sealed } = LogRecord.decode(data));
  } catch {
    return { kind: "open", data: refused };
  }
  if (sealed === null) return { kind: "open", data: refused };
  const { keyId } = sealed;
  const key = keyring.find(keyId);
  if (key === undefined) return { kind: "missing", keyId };
  keyring.met(sequence, keyId);
  return { kind: "open", data: open(key.key, sealed, place(sequence), keyring.sealing) ?? refused };
}
