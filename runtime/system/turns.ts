/**
 * Turns of the event loop. After each poll first what answers it goes out, then work is done for a few milliseconds; what is
 * left waits until that which has come meanwhile, a heartbeat above all, was heard and answered.
 *
 * L1: work is done in the order in which it was asked for, and the promises that one piece has settled are dealt with
 *     before the next.
 * L2: work that is asked for while work is done waits for the next turn.
 * L3: a piece that throws takes no other with it.
 */

/** How long work may go on in one turn, in milliseconds; the piece that reaches it is finished. */
const workMsMax = 4;

let isDue = false;
let sends: (() => void)[] = [];
const work: (() => void)[] = [];
/** Pieces of `work` that may still be done in this turn, and until when (of `performance.now`). */
let left = 0;
let until = 0;

/** Has a piece of work done once whatever runs now is done. */
export function soon(piece: () => void): void {
  work.push(piece);
  makeDue();
}

/** Has something sent at the end of this poll, before any work. */
export function afterPoll(send: () => void): void {
  sends.push(send);
  makeDue();
}

function makeDue(): void {
  if (isDue) return;
  isDue = true;
  setImmediate(turn);
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

/** L1: a tick that a microtask asks for comes after all microtasks. */
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
