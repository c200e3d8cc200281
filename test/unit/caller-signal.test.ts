// The signal of a caller's disconnect to a handler behaves like an AbortSignal.
import test from "ava";
import fc from "fast-check";
import { CallerSignal } from "../../edges/grpc/caller-signal.ts";
import type { CallSignal } from "../../runtime/ports/rpc.ts";

type Step = { readonly kind: "add" | "remove"; readonly listener: number } | { readonly kind: "abort" };

/** Which listeners are called, in order; the last of them removes the first. */
function called(signal: CallSignal, abort: () => void, steps: readonly Step[]): unknown[] {
  const calls: unknown[] = [];
  const listeners = [0, 1, 2].map((each) => (): void => {
    calls.push(each);
    if (each === 2) signal.removeEventListener("abort", listeners[0] as () => void);
  });
  for (const step of steps) {
    if (step.kind === "abort") abort();
    else if (step.kind === "add")
      signal.addEventListener("abort", listeners[step.listener] as () => void, { once: true });
    else signal.removeEventListener("abort", listeners[step.listener] as () => void);
    calls.push(signal.aborted);
  }
  return calls;
}

test("a caller's signal calls the same listeners as an AbortSignal", (t) => {
  const listener = fc.nat({ max: 2 });
  const step: fc.Arbitrary<Step> = fc.oneof(
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("add" as const), listener }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove" as const), listener }) },
    { weight: 1, arbitrary: fc.constant({ kind: "abort" as const }) },
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
      const own = new CallerSignal();
      const platform = new AbortController();
      t.deepEqual(
        called(own, () => own.abort(), steps),
        called(platform.signal, () => platform.abort(), steps),
      );
    }),
  );
});
