/**
 * The cause of the work under way in this turn of the event loop, for those who watch actors: the request's trace, or the traces
 * that a batch serves together, and the call with which it began. A call's handler that waits has the call's cause again when it
 * continues (ADR 57); other work that continues later sets its cause again. It decides nothing, and spans do not use it.
 *
 * CA1: while nobody watches, no cause is searched for, collected or kept; `inTrace` and `inOwnTrace` set one variable.
 * CA2: after a wait, a call's cause holds for what its handler does itself while the call is open: not for work that has another
 *      cause, such as a batch's, nor for timers (`Clock`), later turns (`soon`) and connections that were begun in the call.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Subscription } from "../ports/index.ts";

/** Traces to which one step is linked; further ones are counted. As many as requests share a record of the log in a busy cluster. */
export const linkedTracesMax = 32;

export interface Cause {
  /** W3C trace context; empty if the work is not traced, or serves several traces. */
  readonly traceparent: string;
  /** Trace contexts, each of another trace, that the work serves together. */
  readonly linked: readonly string[];
  /** Number of further traces. */
  readonly linkedMore: number;
  /** Name of the call or message with which the work began, if no actor began it; empty: unknown. */
  readonly call: string;
  /** A timer has led here: timers that are armed now keep no trace, so that none is kept forever. */
  readonly isLate: boolean;
}

export const noCause: Cause = { traceparent: "", linked: [], linkedMore: 0, call: "", isLate: false };

let current = noCause;
let watchers = 0;

/** A call that is being handled. */
export interface OpenCall {
  /** False once it was answered or given up. */
  readonly isOpen: boolean;
}

interface Handling {
  readonly cause: Cause;
  readonly call: OpenCall;
}

/** CA2 */
const handlings = new AsyncLocalStorage<Handling>();

function openHandling(): Handling | undefined {
  const handling = handlings.getStore();
  return handling?.call.isOpen === true ? handling : undefined;
}

export const currentCause = (): Cause =>
  current !== noCause || watchers === 0 ? current : (openHandling()?.cause ?? noCause);

/** False: nobody reads causes, so they need not be found. */
export const isWatched = (): boolean => watchers > 0;

/** Somebody reads causes from now on. */
export function watchCauses(): Subscription {
  watchers += 1;
  return { unsubscribe: () => void (watchers -= 1) };
}

/** Sets the cause of the present turn; returns the one before, to be set again at its end. */
export function setCause(cause: Cause): Cause {
  const before = current;
  current = cause;
  return before;
}

export function inCause<Result>(cause: Cause, act: () => Result): Result {
  if (cause === current) return cause === noCause ? outsideCalls(act) : act();
  const before = setCause(cause);
  try {
    return outsideCalls(act);
  } finally {
    current = before;
  }
}

/** Calls `act` so that the timers and connections that it begins belong to no call, even if a call's handler needs them first. */
export function outsideCalls<Result>(act: () => Result): Result {
  return watchers > 0 && handlings.getStore() !== undefined ? handlings.exit(act) : act();
}

/** As the work of `call`, also after its waits. */
function inHandling<Result>(cause: Cause, call: OpenCall, act: () => Result): Result {
  const before = setCause(cause);
  try {
    return handlings.run({ cause, call }, act);
  } finally {
    current = before;
  }
}

/** Calls `act` with `traceparent` as the current trace context; with the present cause if it is empty. */
export function inTrace<Result>(traceparent: string, act: () => Result): Result {
  if (traceparent === "") return act();
  const present = currentCause();
  if (traceparent === present.traceparent) return act();
  const cause = { ...noCause, traceparent, call: present.call };
  const handling = watchers > 0 ? openHandling() : undefined;
  return handling === undefined ? inCause(cause, act) : inHandling(cause, handling.call, act);
}

/** Calls `act` as work of that trace alone, or of none if it is empty, also within a batch. `call`: who has answered. */
export function inOwnTrace<Result>(traceparent: string, call: string, act: () => Result): Result {
  return inCause({ ...noCause, traceparent, call }, act);
}

/** Calls `act` as the work of a message on that subject. */
export function inMessage<Result>(subject: string, act: () => Result): Result {
  return isWatched() ? inCause({ ...noCause, call: subject }, act) : act();
}

/** By gRPC path. */
const calls = new Map<string, Cause>();

/** Calls `act` as the work of `call`; `path` as `/docker.swarmkit.v1.Control/CreateService`. CA2 */
export function inCall<Result>(path: string, call: OpenCall, act: () => Result): Result {
  if (!isWatched()) return act();
  let cause = calls.get(path);
  if (cause === undefined) {
    cause = { ...noCause, call: path.slice(path.lastIndexOf(".") + 1).replace("/", ".") };
    calls.set(path, cause);
  }
  return inHandling(cause, call, act);
}

const traceOf = (traceparent: string): string => traceparent.split("-", 2)[1] ?? "";

/** Collects the causes of work that is done later, together. */
export class Causes {
  /** Trace contexts by trace. */
  readonly #traces = new Map<string, string>();
  #more = 0;
  #call = "";
  #isLate = true;
  #isEmpty = true;

  /** Adds the present cause. */
  note(): void {
    if (isWatched()) this.add(currentCause());
  }

  add({ traceparent, linked, linkedMore, call, isLate }: Cause): void {
    for (const each of traceparent === "" ? linked : [traceparent]) this.#add(each);
    this.#more += linkedMore;
    this.#call ||= call;
    this.#isLate &&= isLate;
    this.#isEmpty = false;
  }

  /** Empty: not traced. */
  addTrace(traceparent: string): void {
    this.#isLate = this.#isEmpty = false;
    this.#add(traceparent);
  }

  #add(traceparent: string): void {
    if (traceparent === "") return;
    const trace = traceOf(traceparent);
    if (this.#traces.has(trace)) return;
    if (this.#traces.size < linkedTracesMax) this.#traces.set(trace, traceparent);
    else this.#more += 1;
  }

  /** All of them together; nothing is left. */
  take(): Cause {
    const cause = this.peek();
    if (this.#isEmpty) return cause;
    this.#traces.clear();
    [this.#more, this.#call, this.#isLate, this.#isEmpty] = [0, "", true, true];
    return cause;
  }

  /** The same, and keeps them. */
  peek(): Cause {
    if (this.#isEmpty) return noCause;
    const [only = "", ...others] = this.#traces.values();
    const isOne = others.length === 0 && this.#more === 0 && !this.#isLate;
    return {
      traceparent: isOne ? only : "",
      linked: isOne ? [] : [...this.#traces.values()],
      linkedMore: this.#more,
      call: this.#call,
      isLate: this.#isLate && this.#traces.size > 0,
    };
  }
}

/** The cause of a step that a timer leads to, which `armedBy` has armed. */
export function lateCause({ isLate, linked, linkedMore, traceparent }: Cause): Cause {
  if (isLate || (traceparent === "" && linked.length === 0)) return noCause;
  return { ...noCause, linked: traceparent === "" ? linked : [traceparent], linkedMore, isLate: true };
}
