/** A bus within one process for unit tests: stores published messages, and delivers what the test hands it. */
import type { Bus, BusMessage } from "../../runtime/ports/index.ts";

interface TestBus extends Bus {
  /** Delivers a message to every subscriber, whatever its subscription. */
  deliver(subject: string, data: Uint8Array): void;
  setUp(up: boolean): void;
  readonly published: { readonly subject: string; readonly data: Uint8Array }[];
}

export function testBus(): TestBus {
  const handlers = new Set<(message: BusMessage) => void>();
  const listeners = new Set<(up: boolean) => void>();
  const published: { subject: string; data: Uint8Array }[] = [];
  let isUp = true;
  return {
    published,
    publish: (subject, data) => void published.push({ subject, data }),
    subscribe: (_, handler) => {
      handlers.add(handler);
      return { unsubscribe: () => handlers.delete(handler) };
    },
    request: () => Promise.resolve({ kind: "no-responders" }),
    isUp: () => isUp,
    onLink: (listener) => {
      listeners.add(listener);
      return { unsubscribe: () => listeners.delete(listener) };
    },
    deliver: (subject, data) => {
      for (const handler of handlers) handler({ subject, data, headers: {}, respond: () => undefined });
    },
    setUp: (up) => {
      isUp = up;
      for (const listener of listeners) listener(up);
    },
  };
}
