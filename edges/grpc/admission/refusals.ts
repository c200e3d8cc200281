/** Counts refusals by reason, and logs each reason at a bounded rate. */
import type { Counter, Logger, Metrics } from "../../../runtime/ports/index.ts";
import { refusalLogMs } from "./limits.ts";

/** Why a connection was closed, or one of its streams was refused. */
export type RefusalReason =
  | "pending-limit"
  | "first-bytes"
  | "handshake-time"
  | "anonymous-limit"
  | "anonymous-idle"
  | "anonymous-bytes"
  | "anonymous-time"
  | "large-message-time"
  | "known-limit"
  | "waiting-calls"
  | "known-bytes"
  | "unfinished-request"
  | "login-bytes"
  | "credentials"
  | "useless-messages"
  | "protocol";

/** Ports with limits: of nodes and managers, of the JSON API, of the web interface, of Docker's Engine API, and of nodes over NATS. */
export type Port = "grpc" | "json" | "ui" | "docker" | "nats";

export class Refusals {
  readonly #counter: Counter;
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #logged = new Map<string, { at: number; since: number }>();

  constructor(
    { metrics, log }: { readonly metrics: Metrics; readonly log: Logger },
    now: () => number = () => performance.now(),
  ) {
    this.#counter = metrics.counter(
      "muster_refused_total",
      "Connections closed and requests refused because of a limit, by port and reason.",
    );
    this.#log = log;
    this.#now = now;
  }

  count(port: Port, reason: RefusalReason, peer: string): void {
    this.#counter.add(1, { port, reason });
    const key = `${port} ${reason}`;
    const now = this.#now();
    const logged = this.#logged.get(key);
    if (logged !== undefined && now - logged.at < refusalLogMs) {
      logged.since += 1;
      return;
    }
    this.#log.warn({ port, reason, peer, refused: 1 + (logged?.since ?? 0) }, "a peer was refused at a limit");
    this.#logged.set(key, { at: now, since: 0 });
  }
}
