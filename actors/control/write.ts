/** How handlers write: operations on single objects, and transactions that are decided again after a conflict. */
import {
  Basis,
  Meta,
  Operation,
  ProposeRequest_Mode,
  Removal,
  StoreObject,
  type Version,
} from "../../proto/gen/messages.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import type { CallContext } from "../../runtime/ports/rpc.ts";
import type { ProposeOutcome, Tables } from "../../runtime/store/store.ts";
import type { TableName } from "../../proto/table-names.ts";
import { codecs, kindOf } from "../../runtime/store/tables.ts";
import type { Environment } from "../environment.ts";
import { callerOf } from "../origin.ts";
import { failure } from "./answer.ts";

/** Longer than a change of leader takes (6 s at most), shorter than clients wait (dockerd: 20 s). */
export const proposeTimeoutMs = 15_000;
/** Attempts after conflicts with the system's own writes, and the pause between them in milliseconds. */
const attemptsMax = 5;
const retryDelayMs = 50;

/** The parts of a call that are passed to the ledger. */
export type Traced = Pick<CallContext, "traceparent"> &
  Partial<Pick<CallContext, "peer" | "method" | "signal" | "deadline">>;

export type WriteEnvironment = Pick<Environment, "clock" | "proposer" | "store">;

function wrapped<Name extends TableName>(table: Name, object: Tables[Name]): StoreObject {
  return StoreObject.create({ [table]: object } as Partial<StoreObject>);
}

export function creation<Name extends TableName>(table: Name, object: Tables[Name]): Operation {
  return Operation.create({ create: wrapped(table, object) });
}

/** Replaces the object if the stored one still has the version of `object`. */
export function replacement<Name extends TableName>(table: Name, object: Tables[Name]): Operation {
  return Operation.create({ update: wrapped(table, object) });
}

/** Makes an operation conditional on `on` being still the stored object: for decisions that were based on it. */
export function restingOn<Name extends TableName>(operation: Operation, table: Name, on: Tables[Name]): Operation {
  const basis = Basis.create({ kind: kindOf(table), id: on.id, version: on.meta?.version?.index ?? 0 });
  return Operation.patch(operation, { basis: [...operation.basis, basis] });
}

export function removal(table: TableName, id: string): Operation {
  return Operation.create({ remove: Removal.create({ kind: kindOf(table), id }) });
}

/** The object with the version that the caller read, which the ledger compares. */
export function atVersion<Name extends TableName>(table: Name, object: Tables[Name], version: Version): Tables[Name] {
  const meta = Meta.patch(object.meta ?? Meta.create({}), { version });
  return codecs[table].patch(object, { meta } as Partial<Tables[Name]>);
}

function propose(env: WriteEnvironment, operations: readonly Operation[], call: Traced): Promise<ProposeOutcome> {
  const caller = callerOf(call);
  return env.proposer.propose({
    operations,
    mode: ProposeRequest_Mode.ATOMIC,
    timeoutMs: Math.min(proposeTimeoutMs, (call.deadline ?? Number.POSITIVE_INFINITY) - env.clock.monotonic()),
    signal: call.signal,
    ...(call.traceparent === "" ? {} : { traceparent: call.traceparent }),
    ...(caller === null ? {} : { caller }),
  });
}

/** Resolves once all operations are in this process's replica; throws RpcError when none happened or they may have happened. */
export async function commit(env: WriteEnvironment, call: Traced, ...operations: readonly Operation[]): Promise<void> {
  const outcome = await propose(env, operations, call);
  if (outcome.kind !== "committed") throw failure(outcome);
}

/**
 * For changes without a version from the caller: `decide` builds the operations from the current state, and is called again
 * after a conflict. Its errors go to the caller.
 */
export async function transact(
  env: WriteEnvironment,
  call: Traced,
  decide: () => readonly Operation[] | Promise<readonly Operation[]>,
): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    const outcome = await propose(env, await decide(), call);
    if (outcome.kind === "committed") return;
    const isConflict =
      outcome.kind === "refused" && (outcome.code === ErrorCode.outOfSequence || outcome.code === ErrorCode.notFound);
    if (!isConflict || attempt >= attemptsMax || call.signal?.aborted === true) throw failure(outcome);
    // The replica may not have the version yet with which the leader compared.
    await new Promise<void>((resolve) => void env.clock.setTimeout(resolve, retryDelayMs));
  }
}

/** The stored object after the write; the proposed one if it was removed again. */
export function stored<Name extends TableName>(env: WriteEnvironment, table: Name, object: Tables[Name]): Tables[Name] {
  return env.store.get(table, object.id) ?? object;
}
