/**
 * Runs a ledger's transcript: the real ledger and replica, with a log whose answers are commands. Commands:
 *
 *   start                              with an empty log
 *   lease taken revision=N             or `lease ended`
 *   propose ID OPERATION… FIELDS       `create:ID:NAME`, `update:ID:NAME:VERSION`, `remove:ID` of services; `mode=each epoch=N`
 *   log appended                       the pending append succeeds; or `conflict`, `full`, `lost` (unknown and not stored),
 *                                      `stored` (unknown, but stored)
 *   foreign OPERATION… epoch=N         another manager appends a record
 *   read                               this manager reads the log to its end
 *   advance TIME
 */
import { startLedger, type Ledger } from "../../actors/ledger/ledger.ts";
import {
  Change,
  Kind,
  LogRecord,
  Operation,
  ProposeRequest,
  ProposeRequest_Mode,
  Removal,
  StoreObject,
  Timestamp,
  Transaction,
} from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import type { AppendOutcome, Log } from "../../runtime/ports/index.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import { service } from "../unit/store-kit.ts";
import { testManager } from "./manager.ts";
import { ActorStory, worldScript } from "./transcript-actors.ts";
import { fieldsText, type Command, type Fields, type Script } from "./transcript.ts";

const codeNames = new Map<number, string>(Object.entries(ErrorCode).map(([name, code]) => [code, name]));

interface Append {
  readonly data: Uint8Array;
  readonly expectedLast: number;
  readonly answer: (outcome: AppendOutcome) => void;
}

function startWorld() {
  const { env, clock, store: replica } = testManager("m1");
  const records: Uint8Array[] = [];
  let pending: Append | null = null;
  let readers: (() => void)[] = [];

  const log: Partial<Log> = {
    recordBytesMax: 1_000_000,
    bounds: () => Promise.resolve({ first: 1, last: records.length }),
    append: (data, expectedLast) => {
      story.note(`log: append record ${expectedLast + 1}: ${recordText(data)}`);
      return new Promise((answer) => (pending = { data, expectedLast, answer }));
    },
  };
  const ledger: Ledger = startLedger(env, {
    log: log as Log,
    replica,
    follower: { caughtUp: () => new Promise((resolve) => readers.push(resolve)) },
    onLeading: () => {},
    onEnded: () => {},
    onDeposed: () => {},
    onBroken: (error) => story.note(`broken: ${error.message}`),
  });
  const story: ActorStory = new ActorStory({ host: env.host, clock, prefix: "ledger" });

  function propose(id: string, words: readonly string[], { mode, epoch = 0 }: Fields): void {
    const request = ProposeRequest.create({
      id,
      operations: words.map(operationOf),
      mode: mode === "each" ? ProposeRequest_Mode.EACH : ProposeRequest_Mode.ATOMIC,
      epoch: Number(epoch),
    });
    void ledger.propose(request).then(({ ok, error }) => {
      const { code = 0, message = "" } = error ?? {};
      const answer = ok === null ? fieldsText({ error: codeNames.get(code) ?? code, message }) : fieldsText(ok);
      story.note(`answer to ${id}:${answer}`);
    });
  }

  function store(data: Uint8Array, expectedLast: number): void {
    assert(records.length === expectedLast, `the log ends at ${expectedLast}: it has ${records.length} records`);
    records.push(data);
  }

  function answer(outcome: string): void {
    const append = pending;
    assert(append !== null, "an append is pending");
    pending = null;
    const isStored = outcome === "appended" || outcome === "stored";
    if (isStored) store(append.data, append.expectedLast);
    const outcomes: Readonly<Record<string, AppendOutcome>> = {
      appended: { kind: "appended", sequence: records.length },
      conflict: { kind: "conflict" },
      full: { kind: "full", reason: "no space left on device" },
      lost: { kind: "unknown", reason: "timeout" },
      stored: { kind: "unknown", reason: "timeout" },
    };
    const found = outcomes[outcome];
    assert(found !== undefined, `${outcome} is one of ${Object.keys(outcomes).join(", ")}`);
    append.answer(found);
  }

  function foreign(words: readonly string[], { epoch = 0 }: Fields): void {
    const last = records.at(-1);
    const header = Transaction.create({
      id: `foreign${records.length}`,
      epoch: Number(epoch),
      previous: last === undefined ? new Uint8Array(0) : LogRecord.decode(last).checksum,
      time: Timestamp.create({ seconds: Math.floor(clock.now() / 1_000) }),
      writer: "m2",
    });
    const changes = words.map(operationOf).map(({ create, remove }) => Change.create({ put: create, remove }));
    records.push(encodeRecord(Transaction.patch(header, { changes })));
  }

  function read(): void {
    while (replica.version < records.length)
      ledger.onApplied(replica.apply(replica.version + 1, records[replica.version] as Uint8Array));
    for (const reader of readers.splice(0)) reader();
  }

  function run({ name, words: [word = "", ...more], fields }: Command): void {
    switch (name) {
      case "lease":
        if (word === "taken") ledger.take(Number(fields["revision"]));
        else ledger.end();
        break;
      case "propose":
        propose(word, more, fields);
        break;
      case "log":
        answer(word);
        break;
      case "foreign":
        foreign(
          [word, ...more].filter((each) => each !== ""),
          fields,
        );
        break;
      case "read":
        read();
        break;
      default:
        assert(name === "advance", `${name} is a command of the ledger's transcripts`);
    }
  }

  return { story, run };
}

/** Parses `create:ID:NAME`, `update:ID:NAME:VERSION` or `remove:ID`. */
function operationOf(word: string): Operation {
  const [verb, id = "", name = "", version = "0"] = word.split(":");
  const object = StoreObject.create({ service: service(id, name, Number(version)) });
  if (verb === "create") return Operation.create({ create: object });
  if (verb === "update") return Operation.create({ update: object });
  assert(verb === "remove", `${word} is an operation`);
  return Operation.create({ remove: Removal.create({ kind: Kind.KIND_SERVICE, id }) });
}

function recordText(data: Uint8Array): string {
  const { epoch, changes, receipts } = Transaction.decode(LogRecord.decode(data).transaction);
  const texts = changes.map(({ put, remove }) => {
    if (remove !== null) return `remove ${remove.id}`;
    return `put ${put?.service?.id} named ${put?.service?.spec?.annotations?.name}`;
  });
  const completed = receipts.map(({ proposalId }) => proposalId);
  const told = completed.length === 0 ? [] : [`completes ${completed.join(" ")}`];
  return [`epoch ${epoch}`, ...texts, ...told].join(", ");
}

export const ledgerScript = (): Script => worldScript(startWorld);
