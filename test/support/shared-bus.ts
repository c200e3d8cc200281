/** One bus for several actors of one test: delivers in send order, at once, and loses the messages that the test selects. */
import type { Bus, BusMessage, RequestOutcome } from "../../runtime/ports/index.ts";
import { matches } from "../../runtime/sim/subject.ts";

/** Microtasks that an answer may take; there is no clock. */
const answerTurns = 100;

interface SharedBus extends Bus {
  /** True loses the message or the request. */
  loses: (subject: string) => boolean;
  /** True loses the answer to the request. */
  losesAnswer: (subject: string) => boolean;
  /** Bytes of requests in progress. */
  readonly underWay: () => number;
}

export function sharedBus(): SharedBus {
  const handlers = new Map<string, Set<(message: BusMessage) => void>>();
  let bytesUnderWay = 0;
  const tell = (subject: string, data: Uint8Array, respond: (answer: Uint8Array) => void): boolean => {
    const receivers = [...handlers].flatMap(([pattern, each]) => (matches(pattern, subject) ? [...each] : []));
    for (const handler of receivers) handler({ subject, data, headers: {}, respond });
    return receivers.length > 0;
  };
  const bus: SharedBus = {
    loses: () => false,
    losesAnswer: () => false,
    underWay: () => bytesUnderWay,
    publish: (subject, data) => {
      if (!bus.loses(subject)) queueMicrotask(() => tell(subject, data, () => undefined));
    },
    subscribe: (subject, handler) => {
      const receivers = handlers.get(subject) ?? new Set<(message: BusMessage) => void>();
      handlers.set(subject, receivers.add(handler));
      return { unsubscribe: () => receivers.delete(handler) };
    },
    request: async (subject, data): Promise<RequestOutcome> => {
      bytesUnderWay += data.length;
      await Promise.resolve();
      let outcome: RequestOutcome = { kind: "timeout" };
      if (!bus.loses(subject)) {
        const isHeard = tell(subject, data, (answer) => (outcome = { kind: "reply", data: answer }));
        if (!isHeard) outcome = { kind: "no-responders" };
        for (let turn = 0; turn < answerTurns && outcome.kind === "timeout"; turn += 1) await Promise.resolve();
        if (bus.losesAnswer(subject)) outcome = { kind: "timeout" };
      }
      bytesUnderWay -= data.length;
      return outcome;
    },
    isUp: () => true,
    onLink: () => ({ unsubscribe: () => undefined }),
  };
  return bus;
}
