/** The port behind which dataplane drivers run: processes that speak Felix's pipe protocol. */
import type { FromDataplane, ToDataplane } from "../proto/gen/felix.ts";

/** What a driver's process does; nothing more is told after `onExit`. */
export interface DataplaneListener {
  onMessage(message: FromDataplane): void;
  /** It takes more again, after `send` was false. */
  onWritable(): void;
  /** It cannot be understood, or takes nothing any more; it may still run. Once. */
  onBroken(reason: string): void;
  /** It is gone, or never came to be. Once. */
  onExit(how: string): void;
}

export interface DataplaneProcess {
  readonly pid: number;
  /** Writes one message. False: it has enough for now, until `onWritable`. Does nothing once the process is gone. */
  send(fields: Partial<ToDataplane>): boolean;
  /** SIGTERM, and SIGKILL after `graceMs` milliseconds; answered by `onExit`. */
  end(graceMs: number): void;
}

export interface DataplaneLauncher {
  /** Starts the driver; a driver that cannot be started exits. Callbacks never come before this returns. */
  launch(listener: DataplaneListener): DataplaneProcess;
}
