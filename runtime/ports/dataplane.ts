/** The port behind which dataplane drivers run: processes that speak Felix's pipe protocol. */
import type { FromDataplane, ToDataplane } from "../../proto/gen/felix.ts";

/** Events of a driver's process; none follow `onExit`. */
export interface DataplaneListener {
  onMessage(message: FromDataplane): void;
  /** It accepts messages again, after `send` returned false. */
  onWritable(): void;
  /** Its output is invalid, or it accepts nothing any more; it may still run. Called once. */
  onBroken(reason: string): void;
  /** It has exited, or could not be started. Called once. */
  onExit(how: string): void;
}

export interface DataplaneProcess {
  readonly pid: number;
  /** Writes one message. False: its queue is full until `onWritable`. Does nothing after the process has exited. */
  send(fields: Partial<ToDataplane>): boolean;
  /** SIGTERM, and SIGKILL after `graceMs` milliseconds; `onExit` follows. */
  end(graceMs: number): void;
}

export interface DataplaneLauncher {
  /** Starts the driver; if it cannot be started, `onExit` reports it. Never calls back before it returns. */
  launch(listener: DataplaneListener): DataplaneProcess;
}
