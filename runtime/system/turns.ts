/**
 * Turns of the event loop. After each poll, replies to it are sent first, then work runs for a few milliseconds; the rest waits
 * until newly arrived input, above all heartbeats, was handled and answered.
 *
 * L1: work runs in the order in which it was queued, and the promises that one piece settled are handled before the next piece.
 * L2: work that is queued while work runs waits for the next turn.
 * L3: a piece that throws does not affect the others.
 */

import { outsideCalls } from "../observation/cause.ts";

/** Milliseconds for which work may run in one turn; the piece that reaches the limit is finished. */
const workMsMax = 4;

let isDue = false;
let sends: (() => void)[] = [];
const work: (() => void)[] = [];
/** Pieces of `work` that may still run in this turn, and its end (of `performance.now`). */
let left = 0;
let until = 0;

/** Runs a piece of work once everything that is running now is done. */
export function soon(piece: () => void): void {
  work.push(piece);
  makeDue();
}

/** Sends something at the end of this poll, before any work. */
export function afterPoll(send: () => void): void {
  sends.push(send);
  makeDue();
}

function makeDue(): void {
  if (isDue) return;
  isDue = true;
  outsideCalls(() => setImmediate(turn));
}

function turn(): void {
  isDue = false;
  left = work.length;
  until = performance.now() + workMsMax;
  if (left > 0) queueStep();
  const due = sends;
  sends = [];
  for (const send of due) send();
}

/** L1: a tick queued from a microtask runs after all microtasks. */
function queueStep(): void {
  queueMicrotask(() => process.nextTick(step));
}

function step(): void {
  const piece = work.shift() as () => void;
  left -= 1;
  try {
    piece();
  } finally {
    if (left > 0 && performance.now() < until) queueStep();
    else if (work.length > 0) makeDue();
  }
}
