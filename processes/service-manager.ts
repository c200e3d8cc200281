/**
 * Tells the service manager (systemd, or another that speaks its protocol) how a process is: ready, alive, reloading its settings,
 * stopping. The messages are datagrams, which Node cannot send, so the program `systemd-notify` sends them (ADR 53).
 */
import { spawn } from "node:child_process";
import type { Logger } from "../runtime/ports/index.ts";

/** Messages within this part of the watchdog's limit: systemd recommends a half, and one may be late on a busy machine. */
const watchdogShare = 1 / 3;
const microsPerMs = 1_000;

export interface ServiceManager {
  /** The start is complete. From now on, the watchdog expects signs of life from the event loop. */
  ready(): void;
  stopping(): void;
}

const none: ServiceManager = { ready: () => {}, stopping: () => {} };

/**
 * The service manager of this process, from its environment. The variables are removed, so that programs that it starts, tasks
 * among them, cannot speak for it.
 */
export function serviceManager(log: Logger, environment: NodeJS.ProcessEnv = process.env): ServiceManager {
  const { NOTIFY_SOCKET: socket = "", PATH: path = "", WATCHDOG_PID: pid, WATCHDOG_USEC: limit = "" } = environment;
  for (const name of ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"]) delete environment[name];
  if (socket === "") return none;
  let isBroken = false;
  const send = (...variables: readonly string[]): void => {
    if (isBroken) return;
    const child = spawn("systemd-notify", variables, {
      env: { NOTIFY_SOCKET: socket, PATH: path },
      stdio: ["ignore", "ignore", "ignore"],
    });
    // At its end, the process does not wait for it.
    child.unref();
    child.once("error", (error) => {
      // Reported once: the service manager will end the process, and its log should say why.
      if (isBroken) return;
      isBroken = true;
      log.error({ err: error }, "cannot run systemd-notify: the service manager does not learn that this process runs");
    });
  };
  const isWatched = limit !== "" && (pid === undefined || pid === String(process.pid));
  return {
    ready() {
      send("READY=1", "STATUS=Running");
      if (!isWatched) return;
      const everyMs = Math.max(1, Math.floor((Number(limit) / microsPerMs) * watchdogShare));
      setInterval(() => send("WATCHDOG=1"), everyMs).unref();
    },
    stopping: () => send("STOPPING=1", "STATUS=Stopping"),
  };
}
