/** Life cycle of a process that runs until a signal, until its work is done, or until it fails. */
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { UserError } from "../lib/user-error.ts";
import { serviceManager } from "./service-manager.ts";
import { Interrupted, settled, untilSignal, type Starting } from "./signals.ts";

/** How a process ends. */
type End =
  | { readonly kind: "signal"; readonly signal: NodeJS.Signals }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "done" };

/** The work of a process that runs until a signal. */
export const staying = new Promise<never>(() => {});

/**
 * Starts, runs `work`, and stops everything when that is done, at a signal or at an internal failure, whichever comes first: a
 * signal is handled even while either is waiting. A failure is rethrown, so that the process exits with status 1 and a
 * supervisor restarts it. The service manager learns of the start when it is complete: when `ready`, if there is one, resolves.
 */
export async function runUntilEnd<Running extends { stop(): Promise<void>; ready?(): Promise<void> }>(
  telemetry: ProcessTelemetry & { readonly onHangUp: () => void },
  start: (starting: Starting) => Promise<Running>,
  work: (running: Running) => Promise<void> = () => staying,
): Promise<"signal" | "done"> {
  const supervisor = serviceManager(telemetry.log);
  const broken = settled<End>();
  const signal = untilSignal(telemetry.onHangUp);
  const controller = new AbortController();
  void signal.then(() => {
    supervisor.stopping();
    controller.abort();
  });
  const onBroken = (error: unknown): void => broken.resolve({ kind: "failed", error });
  let running: Running;
  try {
    running = await start({ onBroken, ending: controller.signal });
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    telemetry.log.info({ signal: await signal }, "stopped before the start completed");
    await telemetry.shutdown();
    return "signal";
  }
  // If it rejects, so does the work.
  void Promise.resolve(running.ready?.()).then(
    () => supervisor.ready(),
    () => {},
  );
  const end = await Promise.race<End>([
    signal.then((name) => ({ kind: "signal", signal: name })),
    broken.promise,
    work(running).then(
      () => ({ kind: "done" }),
      (error: unknown) => ({ kind: "failed", error }),
    ),
  ]);
  // The caller prints errors that the user can fix.
  if (end.kind === "failed" && !(end.error instanceof UserError))
    telemetry.log.error({ err: end.error }, "internal failure: stopping");
  if (end.kind === "signal") telemetry.log.info({ signal: end.signal }, "stopping");
  await running.stop();
  await telemetry.shutdown();
  if (end.kind === "failed") throw end.error;
  return end.kind;
}
