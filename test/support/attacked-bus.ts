/** Managers' sealed buses on one wire, with an attacker who reads, sends, changes and replays messages. */
import type { DataKey } from "../../proto/gen/messages.ts";
import type { Bus, BusMessage, RequestOutcome } from "../../runtime/ports/index.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { matches } from "../../runtime/sim/subject.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { Keyring } from "../../runtime/store/keyring.ts";
import { SealedBus } from "../../runtime/store/sealed-bus.ts";

/** Every message on the wire. */
export interface Wire {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly asked: boolean;
}

interface Subscriber {
  readonly pattern: string;
  readonly handler: (message: BusMessage) => void;
}

export function attackedBus() {
  const wire: Wire[] = [];
  const subscribers = new Set<Subscriber>();
  const clock = new SimClock();
  let lives = 0;
  /**
   * `answer`: transforms an answer in transit; `loses`: whether a message is lost; `delayMs`: how long an answer is in transit.
   */
  const attack = {
    answer: (_subject: string, data: Uint8Array): Uint8Array => data,
    loses: (_subject: string): boolean => false,
    delayMs: (_subject: string): number => 0,
  };

  function deliver(subject: string, data: Uint8Array, respond: (answer: Uint8Array) => void): number {
    if (attack.loses(subject)) return 1;
    const receivers = [...subscribers].filter(({ pattern }) => matches(pattern, subject));
    for (const { handler } of receivers) clock.soon(() => handler({ subject, data, headers: {}, respond }));
    return receivers.length;
  }

  const inner: Bus = {
    publish: (subject, data) => {
      wire.push({ subject, data, asked: false });
      deliver(subject, data, () => undefined);
    },
    subscribe: (pattern, handler) => {
      const subscriber = { pattern, handler };
      subscribers.add(subscriber);
      return { unsubscribe: () => void subscribers.delete(subscriber) };
    },
    request: (subject, data, { timeoutMs }) => {
      wire.push({ subject, data, asked: true });
      return new Promise<RequestOutcome>((resolve) => {
        clock.setTimeout(() => resolve({ kind: "timeout" }), timeoutMs);
        const respond = (answer: Uint8Array): void => {
          const reply = (): void => resolve({ kind: "reply", data: attack.answer(subject, answer) });
          const delayMs = attack.delayMs(subject);
          if (delayMs === 0) reply();
          else clock.setTimeout(reply, delayMs);
        };
        if (deliver(subject, data, respond) === 0) resolve({ kind: "no-responders" });
      });
    },
    isUp: () => true,
    onLink: () => ({ unsubscribe: () => undefined }),
  };

  /** A manager's keys: `dataKeys` are those of its disk. */
  function keyring(...dataKeys: DataKey[]): Keyring {
    const held = { dataKeys: dataKeys as readonly DataKey[], plainThrough: 0 };
    const store = {
      get dataKeys() {
        return held.dataKeys;
      },
      plainThrough: 0,
      update: (change: { readonly dataKeys: readonly DataKey[] }) => void (held.dataKeys = change.dataKeys),
    };
    return new Keyring(store, new SimRandom("keyring"));
  }

  /** One life of a manager. */
  function manager(keys: Keyring) {
    const name = `life ${(lives += 1)}`;
    const random = new SimRandom(name);
    const trace = new SimTrace(clock, { keepLines: false });
    const telemetry = createSimTelemetry({ who: name, random, trace });
    const bus = new SealedBus({ bus: inner, keyring: keys, random, clock, telemetry });
    const refused = (subject: string, reason: string): number =>
      telemetry.reading("muster_bus_refused_total", { subject, reason });
    const warnings = (): number => trace.marks.get("warn: message on the bus dropped") ?? 0;
    return { bus, refused, telemetry, warnings };
  }

  const inject = ({ subject, data, asked }: Wire): void => {
    if (asked) void inner.request(subject, data, { timeoutMs: 1_000 });
    else inner.publish(subject, data);
  };
  return {
    wire,
    clock,
    attack,
    keyring,
    manager,
    /** Virtual time, in milliseconds. */
    pass: (ms: number) => clock.run({ untilMs: clock.now() + ms }),
    /** Sends as the attacker; answers to it are discarded. */
    inject,
    /** The newest message on that subject. */
    last: (subject: string): Wire => {
      const found = wire.findLast((each) => each.subject === subject);
      if (found === undefined) throw new Error(`nothing was sent on ${subject}`);
      return found;
    },
  };
}

const text = (data: Uint8Array): string => new TextDecoder().decode(data);

/** A handler that records what it receives, and answers `to …`. */
export function hearing(heard: string[]): (message: BusMessage) => void {
  return (message) => {
    heard.push(text(message.data));
    message.respond(new TextEncoder().encode(`to ${text(message.data)}`));
  };
}
