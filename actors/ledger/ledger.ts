/**
 * Hosts the ledger (machines/ledger/ledger.machine.ts): collects proposals from this process and from the bus, and performs the
 * machine's appends to the log. Holds what is too large for the machine's context: the queue and the current batch.
 *
 * D1: a proposal whose deadline has passed, or whose caller is gone, is never appended: it is dropped wherever it waits.
 */
import type { Span } from "@opentelemetry/api";
import { assemble, type BatchLimits, type Settlement } from "../../machines/ledger/batch.ts";
import { ledgerMachine, type AppendRefusal, type LedgerEvent } from "../../machines/ledger/ledger.machine.ts";
import type { RefusalCode } from "../../machines/ledger/proposals.ts";
import { Failure, ProposeOk, ProposeReply, ProposeRequest } from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import { Causes, currentCause, inCause, isWatched, type Cause } from "../../runtime/observation/cause.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import { newId } from "../../runtime/ids.ts";
import type { AppendOutcome, Log, Subscription } from "../../runtime/ports/index.ts";
import type { Follower } from "../../runtime/store/follow.ts";
import { Receipts } from "../../runtime/store/receipts.ts";
import { changeFramingBytes, recordOverheadBytes } from "../../runtime/store/record.ts";
import { LogBreak } from "../../runtime/store/log-break.ts";
import type { AppliedRecord, Replica } from "../../runtime/store/replica.ts";
import { Staging } from "../../runtime/store/staging.ts";
import * as subjects from "../../runtime/subjects.ts";
import { spans as declared } from "../../runtime/telemetry/spans.ts";
import { busMessage } from "../bus-message.ts";
import type { Environment, Running } from "../environment.ts";
import { callOf, tracesOfProposal } from "./causes.ts";
import { aloneHeaderBytesMax, causesOf, headerBytesMax, startAppendSpan, transactionRecord } from "./record.ts";
import { describeSpan, endSpan, startSpan } from "../tracing.ts";

/**
 * Maximum record size, even if the log accepts more: every replica applies a record in one go, and it is the same on every
 * NATS. 2 KiB below NATS's default `max_payload`, for the seal (112 bytes) and JetStream's header (1 KiB).
 */
const recordBytesMax = 1024 * 1024 - 2_048;
/** Maximum changes per record: about 10 ms to build and as long to apply, during which heartbeats wait. */
const recordChangesMax = 500;
/** Maximum queued proposals; a further one is refused with `logUnavailable` at once and may be retried. */
const waitingMax = 10_000;
/** Remembered proposals that needed no change, and so left no receipt in the log. */
const needlessRemembered = 1_000;
/**
 * A probe (an empty proposal) is answered from the log's bounds if the log accepted a record within this time, in milliseconds;
 * after that with an empty record, since only an append shows that the log has its majority and its disk. An idle cluster
 * writes about 5,800 such records a day, of which 100,000 are kept; a busy one writes none.
 */
const provenMsMax = 15_000;
/** Timeout of the log's confirmation that it has not advanced, in milliseconds. */
const confirmTimeoutMs = 2_000;

interface LedgerParts {
  readonly log: Log;
  readonly replica: Replica;
  readonly follower: Pick<Follower, "caughtUp">;
  /** Called when the barrier of `epoch` is in the log and applied. */
  onLeading(epoch: number): void;
  /** Called once for each `onLeading`, when it stops leading. */
  onEnded(): void;
  /** Called when another manager has written a newer epoch. */
  onDeposed(epoch: number): void;
  onBroken(error: Error): void;
  /**
   * Called once the replica is at the log's end, before anything is written; if false, the term ends as that of a deposed
   * leader.
   */
  mayLead?(): boolean;
  /** For tests; defaults to the constants above. */
  readonly limits?: Partial<BatchLimits>;
}

export interface Ledger extends Running {
  /** To be called when the lease is taken, at `revision`. */
  take(revision: number): void;
  /** To be called when the lease has ended. */
  end(): void;
  isLeading(): boolean;
  /** Epoch of the term that it leads. */
  epoch(): number;
  /** Drops a proposal whose caller is gone, unless it is already being appended. */
  withdraw(proposalId: string): void;
  /** Resolves once the proposal is in the log and applied here, or is known not to be. */
  propose(request: ProposeRequest): Promise<ProposeReply>;
  /** To be called with every record that the follower applied. */
  onApplied(record: AppliedRecord): void;
  /** Accepts nothing new, and resolves once nothing is pending. */
  drain(): Promise<void>;
}

interface Waiting {
  readonly request: ProposeRequest;
  from: number;
  skipped: number;
  readonly answers: ((reply: ProposeReply) => void)[];
  /** On this manager's clock; infinite when it may wait forever. */
  deadline: number;
  readonly span: Span | null;
  readonly since: number;
  /** The call with which it came, for those who watch. */
  readonly call: string;
}

interface UnderWay {
  readonly transactionId: string;
  readonly data: Uint8Array;
  /** Null for a barrier or probe. */
  readonly batch: { readonly waiting: readonly Waiting[]; readonly settlements: readonly Settlement[] } | null;
}

export function startLedger(env: Omit<Environment, "proposer" | "times">, parts: LedgerParts): Ledger {
  const { clock, bus, telemetry } = env;
  const { log, replica } = parts;
  const random = env.random.fork("ledger");
  const changesBytesMax = Math.min(log.recordBytesMax, recordBytesMax) - recordOverheadBytes;
  const limits: BatchLimits = {
    bytesMax: changesBytesMax - headerBytesMax,
    aloneBytesMax: changesBytesMax - aloneHeaderBytesMax,
    changesMax: recordChangesMax,
    changeFramingBytes,
    ...(parts.limits?.bytesMax === undefined ? {} : { aloneBytesMax: parts.limits.bytesMax }),
    ...parts.limits,
  };
  const { metrics } = telemetry;
  const appends = metrics.counter("muster_ledger_appends_total", "Appends to the log by outcome.");
  const changes = metrics.counter("muster_ledger_changes_total", "Changes appended to the log.");
  const late = metrics.counter(
    "muster_ledger_late_total",
    "Proposals dropped before their append because their deadline had passed or their caller was gone.",
  );
  const seconds = metrics.histogram(
    "muster_ledger_proposal_seconds",
    "Time from a proposal's arrival to its answer, in seconds.",
  );

  const queue: Waiting[] = [];
  const byId = new Map<string, Waiting>();
  const needless = new Receipts(needlessRemembered);
  /** The unanswered batch; stays while its outcome is unknown. */
  let batch: UnderWay | null = null;
  /** Sequence at which the follower met the record of `batch`; 0: not yet. */
  let batchMetAt = 0;
  /** The last append: the batch, a barrier or a probe. */
  let underWay: UnderWay | null = null;
  /** When the log last accepted a record of this ledger, on the monotonic clock. */
  let provenAt = Number.NEGATIVE_INFINITY;
  let isLeading = false;
  let ledEpoch = 0;
  let isDraining = false;
  let isSignalled = false;
  let subscription: Subscription | null = null;
  let onDrained: (() => void) | null = null;
  let isStopped = false;
  /** The last append with a certain outcome was refused. */
  let isRefused = false;

  /** The log may still answer after the stop. */
  const send = (event: LedgerEvent): void => {
    if (!isStopped) hosted.send(event);
  };

  const settle = (waiting: Waiting, reply: ProposeReply): void => {
    byId.delete(waiting.request.id);
    if (waiting.span !== null) endSpan(env, waiting.span, reply.error === null ? null : reply.error.message);
    seconds.observe((clock.monotonic() - waiting.since) / 1000);
    for (const answer of waiting.answers) answer(reply);
  };

  const lookIfDrained = (): void => {
    if (onDrained !== null && queue.length === 0 && batch === null) onDrained();
  };

  /** The cause of work for these proposals together. */
  const causeOf = (proposals: readonly Waiting[]): Cause => {
    const causes = new Causes();
    if (!isWatched()) return causes.take();
    const [first] = proposals;
    for (const { request } of proposals)
      for (const trace of tracesOfProposal(request, (id) => replica.get("task", id))) causes.addTrace(trace);
    return { ...causes.take(), call: first === undefined ? "" : callOf(first.request) || first.call };
  };

  /** Sends an event after the current turn, so that proposals of the same moment go into one append. */
  const signalWork = (): void => {
    if (isSignalled || queue.length === 0) return;
    isSignalled = true;
    clock.soon(() => {
      isSignalled = false;
      if (queue.length > 0) inCause(causeOf(queue), () => send({ type: "work.arrived" }));
    });
  };

  const propose = (request: ProposeRequest): Promise<ProposeReply> => {
    if (!isLeading || isDraining) return Promise.resolve(failure("notLeader", `${env.managerId} is not the leader`));
    if (request.id === "") return Promise.resolve(failure("malformed", "the proposal has no id"));
    const completed = replica.receipt(request.id) ?? needless.find(request.id);
    if (completed !== undefined) return Promise.resolve(ok(completed.version, completed.skipped));
    // This replica has everything that earlier leaders wrote, and they can write no more: the proposal has not happened and
    // never will.
    if (request.epoch !== 0 && request.epoch !== ledEpoch) {
      return Promise.resolve(
        failure("staleEpoch", `epoch ${request.epoch} has ended; the current epoch is ${ledEpoch}`),
      );
    }
    if (request.deadline !== 0 && request.deadlineEpoch !== ledEpoch) {
      return Promise.resolve(
        failure("unknownDeadline", `the deadline is on the clock of the leader of epoch ${request.deadlineEpoch}`),
      );
    }
    const deadline = request.deadline === 0 ? Number.POSITIVE_INFINITY : request.deadline;
    if (clock.monotonic() >= deadline) return Promise.resolve(failure("logUnavailable", lateSentence));
    return new Promise((resolve) => {
      const known = byId.get(request.id);
      if (known !== undefined) {
        known.deadline = Math.max(known.deadline, deadline);
        known.answers.push(resolve);
        return;
      }
      if (queue.length >= waitingMax) {
        resolve(failure("logUnavailable", "too many proposals are waiting"));
        return;
      }
      const span = request.traceparent === "" ? null : startSpan(env, declared.ledgerCommit, request.traceparent);
      if (span?.isRecording() === true) describeSpan(span, declared.ledgerCommit, { "muster.manager": env.managerId });
      const waiting: Waiting = {
        request,
        from: 0,
        skipped: 0,
        answers: [resolve],
        deadline,
        span,
        since: clock.monotonic(),
        call: currentCause().call,
      };
      byId.set(request.id, waiting);
      queue.push(waiting);
      signalWork();
    });
  };

  /** D1 */
  const dropLate = (): void => {
    const now = clock.monotonic();
    for (let at = queue.length - 1; at >= 0; at -= 1) {
      const waiting = queue[at] as Waiting;
      if (now < waiting.deadline) continue;
      queue.splice(at, 1);
      late.add();
      settle(waiting, failure("logUnavailable", lateSentence));
    }
  };

  const withdraw = (id: string): void => {
    const at = queue.findIndex(({ request }) => request.id === id);
    const [waiting] = at < 0 ? [] : queue.splice(at, 1);
    if (waiting === undefined) {
      // Being appended: if the log does not accept it, it is not decided again.
      const known = byId.get(id);
      if (known !== undefined) known.deadline = 0;
      return;
    }
    late.add();
    settle(waiting, failure("logUnavailable", "the caller is gone"));
    lookIfDrained();
  };

  const append = (
    attempt: number,
    data: Uint8Array,
    span: Span | null = null,
    taken: readonly Waiting[] = [],
  ): void => {
    const answer = (outcome: AppendOutcome): void => {
      appends.add(1, { outcome: outcome.kind });
      if (span !== null) endSpan(env, span, outcome.kind === "appended" ? null : outcome.kind);
      switch (outcome.kind) {
        case "appended":
          provenAt = clock.monotonic();
          isRefused = false;
          send({ type: "append.appended", attempt, sequence: outcome.sequence });
          return;
        case "conflict":
          send({ type: "append.conflict", attempt });
          return;
        case "unknown":
          telemetry.log.warn({ reason: outcome.reason, version: replica.version }, "outcome of an append is unknown");
          send({ type: "append.unknown", attempt });
          return;
        case "full":
        case "refused": {
          const { kind, reason } = outcome;
          // Logged only at the start: the append is retried ten times a second.
          if (!isRefused) telemetry.log.error({ reason }, "the log refused an append");
          isRefused = true;
          send({ type: "append.refused", attempt, code: kind === "full" ? "logFull" : "logUnavailable", reason });
          return;
        }
      }
    };
    const cause = taken.length === 0 ? currentCause() : causeOf(taken);
    void log.append(data, replica.version).then((outcome) => inCause(cause, () => answer(outcome)));
  };

  const appendEmpty = (attempt: number, epoch: number): void => {
    const id = newId(random);
    const data = transactionRecord(env, replica, id, epoch, null, []);
    underWay = { transactionId: id, data, batch: null };
    append(attempt, data);
  };

  const appendBatch = (attempt: number, epoch: number): void => {
    // An answered proposal has left the queue; but a receipt may have arrived from the log since.
    for (let at = queue.length - 1; at >= 0; at -= 1) {
      const waiting = queue[at] as Waiting;
      const completed = replica.receipt(waiting.request.id);
      if (completed === undefined) continue;
      queue.splice(at, 1);
      settle(waiting, ok(completed.version, completed.skipped));
    }
    dropLate();
    const assembled = assemble(new Staging(replica), queue, limits);
    const taken = queue.splice(0, assembled.settlements.length);
    batchMetAt = 0;
    const isProof =
      clock.monotonic() - provenAt >= provenMsMax && taken.some(({ request }) => request.operations.length === 0);
    if (assembled.changes.length > 0 || isProof) {
      const requests = taken.map(({ request }) => request);
      const causes = causesOf(requests, assembled.counts);
      const id = newId(random);
      const data = transactionRecord(env, replica, id, epoch, assembled, causes);
      batch = { transactionId: id, data, batch: { waiting: taken, settlements: assembled.settlements } };
      underWay = batch;
      changes.add(assembled.changes.length);
      const spans = taken.map(({ span }) => span).filter((span) => span !== null);
      append(attempt, data, startAppendSpan(env, spans, taken.length, assembled.changes.length), taken);
      return;
    }
    if (taken.length === 0) {
      send({ type: "append.needless", attempt });
      return;
    }
    batch = {
      transactionId: "",
      data: new Uint8Array(0),
      batch: { waiting: taken, settlements: assembled.settlements },
    };
    // An answer from this replica alone is correct only if the log has not advanced beyond it (G3).
    void log.bounds(confirmTimeoutMs).then((bounds) => {
      const isNewest = bounds !== null && bounds.last === replica.version;
      send({ type: isNewest ? "append.needless" : "append.conflict", attempt });
    });
  };

  const applyAppended = (sequence: number): void => {
    if (underWay === null || replica.version >= sequence) return;
    try {
      replica.apply(sequence, underWay.data);
    } catch (error) {
      if (!(error instanceof LogBreak)) throw error;
      parts.onBroken(error);
    }
  };

  const answerBatch = (version: number): void => {
    const answered = batch?.batch ?? null;
    const isWritten = batch !== null && batch.transactionId !== "";
    batch = null;
    if (answered === null) return;
    for (const [at, waiting] of answered.waiting.entries()) {
      const settlement = answered.settlements[at];
      assert(settlement !== undefined, "G2: each proposal of a batch has its settlement");
      switch (settlement.kind) {
        case "done":
          if (!isWritten) needless.add(waiting.request.id, { version, skipped: settlement.skipped });
          settle(waiting, ok(version, settlement.skipped));
          break;
        case "partial":
          waiting.from = settlement.from;
          waiting.skipped = settlement.skipped;
          // Only the last proposal of a batch can be partial, so this puts it in front.
          queue.unshift(waiting);
          break;
        case "refused":
          settle(waiting, failure(settlement.code, settlement.message));
          break;
      }
    }
    lookIfDrained();
  };

  const returnBatch = (): void => {
    if (batchMetAt > 0) {
      answerBatch(batchMetAt);
      return;
    }
    queue.unshift(...(batch?.batch?.waiting ?? []));
    batch = null;
  };

  const failBatch = (code: AppendRefusal, reason: string): void => {
    const failed = batch?.batch?.waiting ?? [];
    batch = null;
    // Part of it may be in the log already.
    for (const waiting of failed) settle(waiting, failure(waiting.from > 0 ? "logUnavailable" : code, reason));
    lookIfDrained();
  };

  const abandonWork = (): void => {
    isLeading = false;
    subscription?.unsubscribe();
    subscription = null;
    if (batchMetAt > 0) answerBatch(batchMetAt);
    failBatch("logUnavailable", "leadership ended before the log answered");
    for (const waiting of queue.splice(0)) {
      // Part of it may be in the log already.
      const code = waiting.from > 0 ? "logUnavailable" : "notLeader";
      settle(waiting, failure(code, `${env.managerId} is no longer the leader`));
    }
    lookIfDrained();
    parts.onEnded();
  };

  const announceLeading = (epoch: number): void => {
    isLeading = true;
    ledEpoch = epoch;
    telemetry.log.info({ epoch, version: replica.version }, "leading");
    subscription = bus.subscribe(subjects.ledgerPropose, (message) => {
      const request = busMessage(env, ProposeRequest, message);
      if (request === null) {
        message.respond(ProposeReply.encode(failure("malformed", "cannot decode the proposal")));
        return;
      }
      if (request.withdrawn) {
        withdraw(request.id);
        return;
      }
      void propose(request).then((reply) =>
        message.respond(
          ProposeReply.encode(ProposeReply.patch(reply, { epoch, clock: Math.floor(clock.monotonic()) })),
        ),
      );
    });
    parts.onLeading(epoch);
  };

  const hosted = env.host.start(ledgerMachine, "ledger", undefined, {
    effects: {
      catchUp: ({ attempt }) => {
        void parts.follower.caughtUp().then(() => {
          if (parts.mayLead?.() === false) return parts.onDeposed(replica.epoch);
          const isOwn = replica.writer === env.managerId;
          send({ type: "log.reached", attempt, epoch: replica.epoch, isOwn });
        });
      },
      appendBarrier: ({ attempt, epoch }) => appendEmpty(attempt, epoch),
      appendProbe: ({ attempt, epoch }) => appendEmpty(attempt, epoch),
      appendBatch: ({ attempt, epoch }) => appendBatch(attempt, epoch),
      applyAppended: ({ sequence }) => applyAppended(sequence),
      answerBatch: () => answerBatch(replica.version),
      failBatch: ({ code, reason }) => failBatch(code, reason),
      returnBatch: () => returnBatch(),
      settleDoubt: () => returnBatch(),
      lookForWork: () => signalWork(),
      announceLeading: ({ epoch }) => announceLeading(epoch),
      abandonWork: () => abandonWork(),
      announceDeposed: ({ epoch }) => {
        telemetry.log.warn({ epoch }, "another manager leads now");
        parts.onDeposed(epoch);
      },
    },
  });

  return {
    take: (revision) => send({ type: "lease.taken", revision }),
    end: () => send({ type: "lease.ended" }),
    isLeading: () => isLeading && !isDraining,
    epoch: () => ledEpoch,
    withdraw,
    propose,
    onApplied: (applied) => {
      if (batch !== null && applied.transactionId === batch.transactionId) batchMetAt = applied.version;
      if (isLeading) send({ type: "log.advanced", epoch: applied.epoch });
    },
    drain: () => {
      isDraining = true;
      return new Promise((resolve) => {
        onDrained = resolve;
        lookIfDrained();
      });
    },
    stop: () => {
      if (isStopped) return;
      isStopped = true;
      if (isLeading) abandonWork();
      hosted.stop();
    },
  };
}

function ok(version: number, skipped: number): ProposeReply {
  return ProposeReply.create({ ok: ProposeOk.create({ version, skipped }) });
}

const lateSentence = "its deadline passed before the log accepted it";

function failure(
  code: RefusalCode | AppendRefusal | "notLeader" | "staleEpoch" | "unknownDeadline",
  message: string,
): ProposeReply {
  return ProposeReply.create({ error: Failure.create({ code: ErrorCode[code], message }) });
}
