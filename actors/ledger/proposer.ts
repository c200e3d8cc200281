/**
 * The ledger's client in this process: calls the own ledger while it leads, else the leader over the bus. Retries under one id
 * until the outcome is certain or the proposal's deadline has passed, and answers only when this process's own replica has the
 * write.
 */
import {
  Failure,
  Operation,
  Origin,
  ProposeReply,
  ProposeRequest,
  ProposeRequest_Mode,
} from "../../proto/gen/messages.ts";
import { type Backoff, backoffMs, drawBelow } from "../../lib/backoff.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import { newId } from "../../runtime/ids.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { CallSignal } from "../../runtime/ports/rpc.ts";
import type { MarkKeeper } from "../../runtime/store/log-mark.ts";
import type { Proposal, ProposeOutcome, Proposer } from "../../runtime/store/store.ts";
import { reachesVersion, sleep } from "../../runtime/store/wait.ts";
import * as subjects from "../../runtime/subjects.ts";
import { tooLargeMessage } from "../../machines/ledger/batch.ts";
import type { Environment, Running } from "../environment.ts";
import type { Ledger } from "./ledger.ts";

/** Timeout of one attempt over the bus, in milliseconds; then the leader is asked again under the same id. */
const attemptTimeoutMs = 2_000;
/** Between attempts: a new leader takes over within seconds. */
const retryBackoff: Backoff = { stepMs: 20, msMax: 400 };
/**
 * How long a proposal retries while the log's disk is full, in milliseconds; then it fails, and its caller should not retry at
 * once.
 */
const fullTriesMs = 1_000;
/** Maximum wait for this process's replica to have the write, in milliseconds. */
const reachMsMax = 60_000;
/**
 * Maximum bytes of a request over the bus: NATS's default `max_payload`, which every supported NATS allows, less 512 bytes for
 * the seal (about 160). More than the largest record can contain, so the ledger alone decides what is too large.
 */
const requestBytesMax = 1024 * 1024 - 512;
/** Part size of a proposal that may be split, in bytes: small enough for others to get in between. */
const partBytesMax = 768 * 1024;

interface ProposerParts {
  /** This process's ledger; called only while it leads. */
  readonly ledger: Pick<Ledger, "isLeading" | "propose" | "epoch" | "withdraw">;
  /** Why writes fail now, as far as this process knows: the error of a write that failed for lack of a leader or a log. */
  readonly cause?: () => string | null;
  /** Makes the mark of an acknowledged write durable first (K1); absent when no mark is kept. */
  readonly mark?: Pick<MarkKeeper, "holds">;
  /** Why the log's disk accepts no writes, as far as this process knows; null when it knows no cause. */
  readonly fullCause?: () => string | null;
  /** Encodes even proposals that stay in this process, so that a simulation finds those that cannot be encoded. */
  readonly encodesAlways?: boolean;
}

/** How many leaders' clocks one proposal may learn without a pause in between. */
const unknownMax = 3;
/** Maximum relative difference in clock speed. NTP slews by at most 500 ppm. */
const driftMax = 0.001;

interface LeaderClock {
  readonly epoch: number;
  /** The leader's clock when it sent this, in milliseconds; 0: not reported. */
  readonly clock: number;
}

interface StartedProposer extends Proposer, Running {
  /** To be called with the leader's clock from its beats. */
  hearLeader(told: LeaderClock): void;
}

/** `unsent`: known not to have happened. */
type Attempt =
  | { readonly kind: "reply"; readonly reply: ProposeReply }
  | { readonly kind: "unsent" }
  | { readonly kind: "unanswered" };

export function startProposer(env: Omit<Environment, "proposer" | "times">, parts: ProposerParts): StartedProposer {
  const { clock, bus, store } = env;
  const random = env.random.fork("proposer");
  const retries = env.telemetry.metrics.counter("muster_proposer_retries_total", "Attempts beyond a proposal's first.");
  let isStopped = false;
  /** `at`: when the beat arrived, on the own clock. The leader had sent it by then, so its clock was at `clock` or later. */
  let leader: { readonly epoch: number; readonly clock: number; readonly at: number } | null = null;

  const hearLeader = ({ clock: told, epoch }: LeaderClock): void => {
    if (told === 0 || (leader !== null && epoch < leader.epoch)) return;
    const at = clock.monotonic();
    // Of one leader's beats, the one with the shortest transit counts.
    if (leader?.epoch === epoch && told - at < leader.clock - leader.at) return;
    leader = { epoch, clock: told, at };
  };

  /**
   * The request with its deadline on the leader's clock: never later than `until` on the own clock. If the leader's clock is
   * unknown, its refusal contains it.
   */
  const fenced = (request: ProposeRequest, until: number): ProposeRequest => {
    if (request.epoch !== 0 || until === Number.POSITIVE_INFINITY) return request;
    if (leader === null) return ProposeRequest.patch(request, { deadline: 1, deadlineEpoch: 0 });
    const deadline = Math.floor(leader.clock + (until - leader.at) - Math.abs(until - leader.at) * driftMax);
    return ProposeRequest.patch(request, { deadline: Math.max(1, deadline), deadlineEpoch: leader.epoch });
  };

  /** Undefined when `promise` takes longer. */
  const within = <Value>(promise: Promise<Value>, ms: number): Promise<Value | undefined> => {
    if (ms === Number.POSITIVE_INFINITY) return promise;
    return new Promise((resolve) => {
      const timer: TimerHandle = clock.setTimeout(() => resolve(undefined), ms);
      void promise.then((value) => {
        clock.clearTimeout(timer);
        resolve(value);
      });
    });
  };

  const attempt = async (request: ProposeRequest, remainingMs: number): Promise<Attempt> => {
    const now = clock.monotonic();
    if (parts.ledger.isLeading()) {
      const own =
        request.epoch !== 0 || remainingMs === Number.POSITIVE_INFINITY
          ? request
          : ProposeRequest.patch(request, {
              deadline: Math.ceil(now + remainingMs),
              deadlineEpoch: parts.ledger.epoch(),
            });
      const local = parts.encodesAlways === true ? ProposeRequest.decode(ProposeRequest.encode(own)) : own;
      const reply = await within(parts.ledger.propose(local), remainingMs);
      return reply === undefined ? { kind: "unanswered" } : { kind: "reply", reply };
    }
    const timeoutMs = Math.min(attemptTimeoutMs, remainingMs);
    const sent = ProposeRequest.encode(fenced(request, now + timeoutMs));
    const outcome = await bus.request(subjects.ledgerPropose, sent, { timeoutMs });
    switch (outcome.kind) {
      case "reply": {
        const reply = decodeReply(outcome.data);
        hearLeader(reply);
        return { kind: "reply", reply };
      }
      case "no-responders":
        return { kind: "unsent" };
      case "timeout":
      case "closed":
        return { kind: "unanswered" };
    }
  };

  /**
   * The caller is gone: drops the proposal here or at the leader while it is queued. One on its way there ends by its deadline.
   */
  const withdraw = (request: ProposeRequest): void => {
    if (parts.ledger.isLeading()) parts.ledger.withdraw(request.id);
    else
      bus.publish(
        subjects.ledgerPropose,
        ProposeRequest.encode(ProposeRequest.create({ id: request.id, withdrawn: true })),
      );
  };

  const settle = async (
    request: ProposeRequest,
    deadline: number,
    signal: CallSignal | undefined,
  ): Promise<ProposeOutcome> => {
    const onAbort = (): void => withdraw(request);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await trySettle(request, deadline, signal);
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  };

  const trySettle = async (
    request: ProposeRequest,
    deadline: number,
    signal: CallSignal | undefined,
  ): Promise<ProposeOutcome> => {
    let maybe = false;
    let message = "no manager leads";
    let unknown = 0;
    const begunAt = clock.monotonic();
    for (let tries = 0; !isStopped; tries += 1) {
      const remainingMs = deadline - clock.monotonic();
      if (remainingMs <= 0) break;
      if (signal?.aborted === true) {
        message = "the caller is gone";
        break;
      }
      if (tries > 0) retries.add();
      // While the disk is full there may be no leader, and the outcome of a batch may remain unknown.
      const mayWait = request.epoch !== 0 || parts.fullCause?.() == null;
      const result = await attempt(request, mayWait ? remainingMs : Math.min(fullTriesMs, remainingMs));
      let full = parts.fullCause?.() ?? null;
      if (result.kind === "unanswered") {
        maybe = true;
        message = "the leader did not answer in time";
      } else if (result.kind === "reply") {
        const { ok, error } = result.reply;
        if (ok !== null) {
          await reachesVersion(store, clock, ok.version, Math.min(deadline - clock.monotonic(), reachMsMax));
          // Duties acknowledge nothing to outside callers.
          if (request.epoch === 0) await parts.mark?.holds(ok.version);
          return { kind: "committed", version: ok.version, skipped: ok.skipped };
        }
        const code = codeOf(error?.code ?? 0);
        // The answer contains the leader's clock. Another leader may have started since, but not endlessly.
        if (code === ErrorCode.unknownDeadline && unknown < unknownMax) {
          unknown += 1;
          continue;
        }
        message = error?.message ?? "the ledger's answer is empty";
        if (code === ErrorCode.logUnavailable) maybe = true;
        else if (code === ErrorCode.logFull) full = message;
        else if (code !== ErrorCode.notLeader && code !== ErrorCode.unknownDeadline)
          return { kind: "refused", code, message };
      }
      // A duty's proposal is retried until its term ends.
      if (full !== null && request.epoch === 0 && clock.monotonic() - begunAt >= fullTriesMs) {
        if (maybe) withdraw(request);
        return { kind: "unavailable", maybe, message: full };
      }
      const waitMs = drawBelow(random)(backoffMs(retryBackoff, tries + 1));
      await sleep(clock, Math.min(waitMs, Math.max(0, deadline - clock.monotonic())));
    }
    const why = parts.cause?.() ?? message;
    return { kind: "unavailable", maybe, message: isStopped ? "the manager is stopping" : why };
  };

  /** Sends a proposal that does not fit into one request in several, one after the other; only mode EACH allows that. */
  const settleParts = async (
    request: ProposeRequest,
    deadline: number,
    signal: CallSignal | undefined,
  ): Promise<ProposeOutcome> => {
    const pieces = parts.ledger.isLeading() ? [request] : split(request);
    if (pieces === null) {
      return {
        kind: "refused",
        code: ErrorCode.tooLarge,
        message: tooLargeMessage(ProposeRequest.encode(request).length, requestBytesMax),
      };
    }
    let skipped = 0;
    let last: ProposeOutcome = { kind: "committed", version: store.version, skipped: 0 };
    for (const [at, piece] of pieces.entries()) {
      last = await settle(piece, deadline, signal);
      if (last.kind === "unavailable") return { ...last, maybe: last.maybe || at > 0 };
      if (last.kind === "refused") return last;
      skipped += last.skipped;
    }
    return last.kind === "committed" ? { ...last, skipped } : last;
  };

  const split = (request: ProposeRequest): ProposeRequest[] | null => {
    const { length } = ProposeRequest.encode(request);
    if (length <= partBytesMax) return [request];
    if (request.mode === ProposeRequest_Mode.ATOMIC) return length <= requestBytesMax ? [request] : null;
    const pieces: ProposeRequest[] = [];
    let operations: Operation[] = [];
    let bytes = 0;
    const flush = (): void => {
      if (operations.length > 0) pieces.push(ProposeRequest.patch(request, { id: newId(random), operations }));
      operations = [];
      bytes = 0;
    };
    for (const operation of request.operations) {
      const size = Operation.encode(operation).length + 8;
      if (size > requestBytesMax - 256) return null;
      if (bytes + size > partBytesMax - 256) flush();
      operations.push(operation);
      bytes += size;
    }
    flush();
    return pieces;
  };

  return {
    hearLeader,
    propose: (proposal: Proposal) => {
      const { operations, mode, traceparent = "", timeoutMs, epoch = 0, signal } = proposal;
      const { caller = null, origin = Origin.ORIGIN_UNKNOWN } = proposal;
      if (operations.length === 0 && proposal.isProbe !== true)
        return Promise.resolve({ kind: "committed", version: store.version, skipped: 0 });
      const request = ProposeRequest.create({
        id: newId(random),
        operations,
        mode,
        traceparent,
        epoch,
        caller,
        origin,
      });
      return settleParts(request, epoch === 0 ? clock.monotonic() + timeoutMs : Number.POSITIVE_INFINITY, signal);
    },
    stop: () => {
      isStopped = true;
    },
  };
}

function decodeReply(data: Uint8Array): ProposeReply {
  try {
    return ProposeReply.decode(data);
  } catch {
    return ProposeReply.create({
      error: Failure.create({ code: ErrorCode.logUnavailable, message: "cannot decode the ledger's answer" }),
    });
  }
}

/** An unknown code counts as one that allows a retry. */
function codeOf(code: number): ErrorCode {
  return Object.values(ErrorCode).find((known) => known === code) ?? ErrorCode.logUnavailable;
}
