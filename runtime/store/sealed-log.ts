/**
 * The log as everything above it sees it: records go in sealed and come out open, whoever reads them. What was written
 * before the first data key is handed over as it stands (Y3).
 *
 * Z1: a record that cannot be opened for want of its key stops the reading there, which goes on when the key has come. The
 *     record is read again now and then: where the name of its key was damaged on its way, that key never comes.
 * Z2: one that has its key and does not open, or stands unsealed where nothing may, is handed over as a record that R1 refuses.
 * Z3: one that does not open is read once more before that is believed: a record of this cluster that was damaged on its way
 *     must not be taken for somebody else's, which readers pass over.
 */
import { LogRecord, Sealed } from "../../proto/gen/messages.ts";
import type { AppendOutcome, Clock, Log, LogReader, LogRoom, Random, Subscription, TimerHandle } from "../ports.ts";
import type { Keyring } from "./keyring.ts";
import { open, seal, sealOverheadBytes, type SealedFor } from "./seal.ts";

/** Z2: its checksum is not that of its transaction. */
const refused = LogRecord.encode(LogRecord.create({ sealed: Sealed.create({}) }));

function place(sequence: number): SealedFor {
  return { purpose: "record", place: String(sequence) };
}

/** Tag of LogRecord.sealed: field 3, length-delimited. Nothing else is in a sealed record, so it is the first byte. */
const sealedTag = (3 << 3) | 2;

/** Between two looks at a record whose key is lacking, in milliseconds: a read of one record, of a manager that can do nothing else. */
const lackingRetryMs = 5_000;

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
      sealed = seal(this.#keyring.forAppend(expectedLast), data, this.#random, place(expectedLast + 1));
    } catch (error) {
      return Promise.resolve({ kind: "refused", reason: `the data key could not be saved: ${String(error)}` });
    }
    return this.#log.append(LogRecord.encode(LogRecord.create({ sealed })), expectedLast);
  }

  read(fromSequence: number, reader: LogReader): Subscription {
    return new SealedReading(this.#log, this.#keyring, this.#clock, fromSequence, reader);
  }

  bounds(timeoutMs: number): Promise<{ readonly first: number; readonly last: number } | null> {
    return this.#log.bounds(timeoutMs);
  }

  bytes(timeoutMs: number): Promise<number | null> {
    return this.#log.bytes(timeoutMs);
  }

  room(): LogRoom {
    return this.#log.room();
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
  #next: number;
  #reading: Subscription | null = null;
  /** Counts the readings of the log below, so that a given-up one is not heard any more. */
  #turn = 0;
  #waiting: Subscription | null = null;
  #retry: TimerHandle | null = null;
  /** The record that did not open, and is being read once more; 0: none. Z3 */
  #doubted = 0;
  /** The key of the record that cannot be opened; empty: none. */
  #waitsFor = "";
  #isActive = true;

  constructor(log: Log, keyring: Keyring, clock: Clock, fromSequence: number, reader: LogReader) {
    this.#log = log;
    this.#keyring = keyring;
    this.#clock = clock;
    this.#next = fromSequence;
    this.#reader = reader;
    this.#begin();
  }

  unsubscribe(): void {
    this.#isActive = false;
    this.#turn += 1;
    // Nobody waits for it here any more; another reading that does says so again.
    if (this.#waitsFor !== "") this.#keyring.lackNoMore(this.#waitsFor);
    this.#endWait();
    this.#reading?.unsubscribe();
  }

  #begin(): void {
    const turn = (this.#turn += 1);
    const isCurrent = (): boolean => this.#isActive && this.#turn === turn;
    const reading = this.#log.read(this.#next, {
      onRecord: (sequence, data) => {
        if (!isCurrent()) return;
        const opened = openRecord(this.#keyring, sequence, data);
        if (opened.kind === "lacking") {
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
    });
    // It may have handed over, and been given up, before it returned.
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
      this.#keyring.lackNoMore(keyId);
      this.#begin();
    };
    this.#waiting = this.#keyring.onChange(() => {
      if (this.#keyring.find(keyId) !== undefined) goOn();
    });
    this.#retry = this.#clock.setTimeout(goOn, lackingRetryMs);
    this.#waitsFor = keyId;
    this.#keyring.lack(keyId, "record");
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
  | { readonly kind: "lacking"; readonly keyId: string };

/** The record as it was before it was sealed. */
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
  if (key === undefined) return { kind: "lacking", keyId };
  keyring.met(sequence, keyId);
  return { kind: "open", data: open(key.key, sealed, place(sequence)) ?? refused };
}
