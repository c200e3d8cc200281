/**
 * A manager's environment for unit tests: the real replica, and a ledger that decides as the real one does and appends to a log
 * that cannot fail, all on a clock that the test controls.
 */
import type { Environment } from "../../actors/environment.ts";
import { stampedTimes } from "../../machines/elapsed.ts";
import { decide } from "../../machines/ledger/proposals.ts";
import {
  Cause,
  Change,
  Operation,
  ProposeRequest_Mode,
  Removal,
  StoreObject,
  Timestamp,
  Transaction,
} from "../../proto/gen/messages.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import { Host } from "../../runtime/host.ts";
import type { Bus } from "../../runtime/ports/index.ts";
import type { CallContext, Peer, Sink } from "../../runtime/ports/rpc.ts";
import { RpcError } from "../../runtime/ports/rpc.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import { Staging } from "../../runtime/store/staging.ts";
import { kindOf } from "../../runtime/store/tables.ts";
import type { Proposal, ProposeOutcome, Tables } from "../../runtime/store/store.ts";
import type { TableName } from "../../proto/table-names.ts";

export interface TestManager {
  readonly env: Environment;
  readonly clock: SimClock;
  readonly store: Replica;
  /** Proposals in order. */
  readonly proposals: readonly Proposal[];
  /** Writes objects unconditionally. */
  readonly seed: <Name extends TableName>(table: Name, ...objects: readonly Tables[Name][]) => void;
  /** Removes an object if it exists. */
  readonly drop: (table: TableName, id: string) => void;
  /** The log: the record of version `n` is at `n - 1`. */
  readonly records: readonly Uint8Array[];
  /** While true, nobody accepts proposals. */
  leaderless: boolean;
}

export const noBus: Bus = {
  publish: () => undefined,
  subscribe: () => ({ unsubscribe: () => undefined }),
  request: () => Promise.resolve({ kind: "no-responders" }),
  isUp: () => true,
  onLink: () => ({ unsubscribe: () => undefined }),
};

export function testManager(managerId = "manager1"): TestManager {
  const clock = new SimClock();
  const random = new SimRandom("test");
  const telemetry = createSimTelemetry({
    who: managerId,
    random: random.fork("telemetry"),
    trace: new SimTrace(clock, { keepLines: false }),
  });
  const store = new Replica();
  const proposals: Proposal[] = [];
  const records: Uint8Array[] = [];
  const manager = { leaderless: false };

  function append(changes: readonly Change[], causes: readonly Cause[] = []): void {
    const header = Transaction.create({
      id: `t${store.version + 1}`,
      epoch: 1,
      previous: store.checksum,
      time: Timestamp.create({ seconds: Math.floor(clock.now() / 1_000), nanos: (clock.now() % 1_000) * 1e6 }),
      writer: managerId,
      causes,
    });
    const record = encodeRecord(Transaction.patch(header, { changes }));
    records.push(record);
    store.apply(store.version + 1, record);
  }

  function propose(proposal: Proposal): ProposeOutcome {
    proposals.push(proposal);
    if (manager.leaderless) return { kind: "unavailable", maybe: false, message: "there is no leader" };
    const staging = new Staging(store);
    const changes: Change[] = [];
    let skipped = 0;
    // As over the wire: a proposal is what its bytes decode to.
    for (const operation of proposal.operations.map((each) => Operation.decode(Operation.encode(each)))) {
      const decision = decide(staging as never, operation);
      if (decision.kind === "change") {
        changes.push(decision.change);
        staging.stage(decision.change);
      } else if (decision.kind === "refused" && proposal.mode === ProposeRequest_Mode.ATOMIC) {
        return { kind: "refused", code: ErrorCode[decision.code], message: decision.message };
      } else {
        skipped += 1;
      }
    }
    const { caller = null, origin = 0 } = proposal;
    const causes = caller === null && origin === 0 ? [] : [Cause.create({ caller, origin })];
    if (changes.length > 0) append(changes, causes);
    return { kind: "committed", version: store.version, skipped };
  }

  const env: Environment = {
    managerId,
    clock,
    random: random.fork("manager"),
    bus: noBus,
    telemetry,
    host: new Host({
      clock,
      telemetry,
      onCrash: (actorId, error) => {
        throw new Error(`actor ${actorId} crashed`, { cause: error });
      },
    }),
    store,
    proposer: { propose: (proposal) => Promise.resolve().then(() => propose(proposal)) },
    times: stampedTimes,
  };
  return Object.assign(manager, {
    env,
    clock,
    store,
    proposals,
    records,
    drop: (table: TableName, id: string) => {
      if (store.get(table, id) === undefined) return;
      append([Change.create({ remove: Removal.create({ kind: kindOf(table), id }) })]);
    },
    seed: <Name extends TableName>(table: Name, ...objects: readonly Tables[Name][]) => {
      append(objects.map((object) => Change.create({ put: StoreObject.create({ [table]: object } as never) })));
    },
  });
}

export function call(peer: Partial<Peer> = {}, signal = new AbortController().signal): CallContext {
  return { peer: { identity: null, local: true, address: "", ...peer }, signal, traceparent: "" };
}

/** The error of a call; null if it succeeded. */
export async function refusalOf(run: () => unknown): Promise<{ code: number; message: string } | null> {
  try {
    await run();
    return null;
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return { code: error.code, message: error.message };
  }
}

export interface CollectedStream<Message> extends Sink<Message> {
  readonly messages: readonly Message[];
  /** Undefined while the stream is open; null if it ended normally. */
  readonly ended: RpcError | null | undefined;
  buffered: number;
}

export function collectedStream<Message>(): CollectedStream<Message> {
  const messages: Message[] = [];
  const stream = {
    messages,
    ended: undefined as RpcError | null | undefined,
    buffered: 0,
    write: (message: Message) => void messages.push(message),
    end: (error?: RpcError) => {
      stream.ended ??= error ?? null;
    },
    bufferedBytes: () => stream.buffered,
  };
  return stream;
}
