/** An attacker on NATS without the cluster's keys: sees, replays, modifies and forges messages and answers. */
import { SealedMessage } from "../../proto/gen/messages.ts";
import type { BusMessage, Subscription } from "../../runtime/ports/index.ts";
import type { Simulation } from "../../runtime/sim/simulation.ts";
import { busSubjects } from "../../runtime/subjects.ts";

/** Messages, and answers, kept for replay: a sample over the whole run, so that old ones stay. */
const recordedMax = 400;
/** Questions that are, or were until recently, open. */
const askedMax = 20;

interface SimAttacker {
  stop(): void;
}

/** `meanMs`: mean time between two attacks. */
export function startAttacker(simulation: Simulation, meanMs: number): SimAttacker {
  const { clock, nats, trace } = simulation;
  const random = simulation.random.fork("attacker");
  const { bus } = simulation.ports("attacker");
  const recorded: { readonly subject: string; readonly data: Uint8Array }[] = [];
  const answers: Uint8Array[] = [];
  const asked: BusMessage[] = [];
  let isStopped = false;
  // The attacker receives its own messages too.
  const own = new Set<string>();
  const textOf = (data: Uint8Array): string => Buffer.from(data).toString("base64");

  const keep = <Item>(items: Item[], item: Item): void => {
    if (items.length < recordedMax) items.push(item);
    else items[random.below(recordedMax)] = item;
  };
  const tap: Subscription = bus.subscribe("muster.v1.>", (message) => {
    if (own.delete(textOf(message.data))) return;
    keep(recorded, { subject: message.subject, data: message.data });
    asked.push(message);
    if (asked.length > askedMax) asked.shift();
  });
  nats.onAnswer = (data) => keep(answers, data);

  const send = (mark: string, subject: string, data: Uint8Array): void => {
    trace.mark(`attack.${mark}`);
    own.add(textOf(data));
    if (random.chance(0.5)) bus.publish(subject, data);
    else void bus.request(subject, data, { timeoutMs: 1_000 });
  };

  const changed = (data: Uint8Array): Uint8Array => {
    const copy = Uint8Array.from(data);
    const at = random.below(copy.length);
    copy[at] = (copy[at] as number) ^ (1 << random.below(8));
    return copy;
  };

  /** A forged message with an unused number. */
  const forged = (data: Uint8Array): Uint8Array => {
    let message: SealedMessage;
    try {
      message = SealedMessage.decode(data);
    } catch {
      return data;
    }
    const ciphertext = random.chance(0.5) ? message.ciphertext : random.bytes(message.ciphertext.length);
    return SealedMessage.encode(
      SealedMessage.patch(message, {
        number: message.number + random.below(1_000),
        ciphertext,
      }),
    );
  };

  const answer = (): void => {
    const question = asked[random.below(asked.length)];
    if (question === undefined) return;
    trace.mark("attack.answer");
    const made = [
      () => answers[random.below(answers.length)] ?? new Uint8Array(),
      () => question.data,
      () => random.bytes(random.below(40)),
    ];
    question.respond(random.pick(made)());
  };

  const attack = (): void => {
    const one = recorded[random.below(recorded.length)];
    const other = recorded[random.below(recorded.length)];
    if (one === undefined || other === undefined) return;
    random.pick([
      () => send("replay", one.subject, one.data),
      () => send("replay", one.subject, one.data),
      () => send("redirect", other.subject, one.data),
      () => send("truncate", one.subject, one.data.subarray(0, random.below(one.data.length))),
      () => send("change", one.subject, changed(one.data)),
      () => send("forge", one.subject, forged(one.data)),
      () => send("garbage", one.subject, random.bytes(random.below(200))),
      () => send("garbage", random.pick(busSubjects).build("n1"), random.bytes(3)),
      answer,
    ])();
  };

  const next = (): void => {
    clock.schedule(
      () => {
        if (isStopped) return;
        attack();
        next();
      },
      -meanMs * Math.log(1 - random.next()),
      null,
    );
  };
  next();
  return {
    stop: () => {
      isStopped = true;
      tap.unsubscribe();
      nats.onAnswer = null;
    },
  };
}
