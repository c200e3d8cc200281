/** The life of a process that only ends when it is told to, when it is done, or when something inside fails. */
import type { ProcessTelemetry } from "../../runtime/telemetry/telemetry.ts";
import { UserError } from "../user-error.ts";
import { Interrupted, settled, untilSignal, type Starting } from "./signals.ts";

/** How a process comes to its end. */
type End =
  | { readonly kind: "signal"; readonly signal: NodeJS.Signals }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "done" };

/** What a process does that only ends when it is told to. */
export const staying = new Promise<never>(() => {});

/**
 * Starts, does `work`, and ends everything when that is done, at a signal or at a failure inside, whichever comes first:
 * so a signal is heeded while either still waits for something. A failure is thrown on, so that the exit status is 1 and
 * a supervisor starts the process again.
 */
export async function runUntilEnd<Running extends { stop(): Promise<void> }>(
  telemetry: ProcessTelemetry,
  start: (starting: Starting) => Promise<Running>,
  work: (running: Running) => Promise<void> = () => staying,
): Promise<"signal" | "done"> {
  const broken = settled<End>();
  const signal = untilSignal(telemetry.reopenLog);
  const controller = new AbortController();
  void signal.then(() => controller.abort());
  const onBroken = (error: unknown): void => broken.resolve({ kind: "failed", error });
  let running: Running;
  try {
    running = await start({ onBroken, ending: controller.signal });
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    telemetry.log.info({ signal: await signal }, "ended before it had started");
    await telemetry.shutdown();
    return "signal";
  }
  const end = await Promise.race<End>([
    signal.then((name) => ({ kind: "signal", signal: name })),
    broken.promise,
    work(running).then(
      () => ({ kind: "done" }),
      (error: unknown) => ({ kind: "failed", error }),
    ),
  ]);
  // What is the user's to mend is told in one sentence, by whoever called.
  if (end.kind === "failed" && !(end.error instanceof UserError))
    telemetry.log.error({ err: end.error }, "broken; ending");
  if (end.kind === "signal") telemetry.log.info({ signal: end.signal }, "ending");
  await running.stop();
  await telemetry.shutdown();
  if (end.kind === "failed") throw end.error;
  return end.kind;
}
