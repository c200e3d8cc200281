/** The connection to Stately's inspector: messages of `@statelyai/inspect` as JSON over a WebSocket. */
import { UsageError, UserError } from "../../lib/user-error.ts";
import type { StatelyMessage } from "./stately-messages.ts";

/** Bytes that may wait for a slow inspector; above it, messages are left out and counted. */
const waitingBytesMax = 8 * 1024 * 1024;
/** Milliseconds in which the inspector must accept the connection. */
const connectMs = 5_000;

export interface StatelyLink {
  /** False: left out, because the inspector is slower than the feed. */
  send(message: StatelyMessage): boolean;
  /** Whether `send` would leave messages out. */
  readonly isFull: boolean;
  /** Resolves when the inspector has closed the connection, with its reason. */
  readonly closed: Promise<string>;
  close(): void;
}

/** Throws UsageError. */
export function inspectorUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !["ws:", "wss:"].includes(url.protocol))
    throw new UsageError(`invalid inspector address "${text}": expected ws://HOST:PORT or wss://HOST`);
  return url;
}

/** Rejects with UserError when nothing accepts the connection. */
export async function connectToStately(url: URL): Promise<StatelyLink> {
  const socket = new WebSocket(url);
  const opened = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<string>();
  const failed = (why: string): void =>
    opened.reject(
      new UserError(
        `cannot connect to Stately's inspector at ${url.href}: ${why}; start one with createInspectorServer of @statelyai/inspect/server`,
      ),
    );
  const timer = setTimeout(() => failed(`no answer within ${connectMs / 1_000} s`), connectMs);
  socket.addEventListener("open", () => opened.resolve());
  socket.addEventListener("error", () => failed("nothing accepts WebSocket connections there"));
  socket.addEventListener("close", ({ code, reason }) => closed.resolve(reason === "" ? `code ${code}` : reason));
  try {
    await opened.promise;
  } catch (error) {
    socket.close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
  const isFull = (): boolean => socket.bufferedAmount > waitingBytesMax;
  return {
    send(message) {
      if (isFull()) return false;
      socket.send(JSON.stringify(message));
      return true;
    },
    get isFull() {
      return isFull();
    },
    closed: closed.promise,
    close: () => socket.close(),
  };
}
