/**
 * The NATS over which nodes call managers (`runtime/calls/`), as a network that carries messages by subject: it loses, repeats
 * and reorders them, and delivers nothing across a cut. No server of it is modelled: one that dies loses messages.
 */
import type { Bus, BusMessage } from "../ports/index.ts";
import type { Peer } from "../ports/rpc.ts";
import type { Endpoint, SimNetwork } from "./network.ts";
import type { SimRandom } from "./random.ts";
import { matches } from "./subject.ts";

/**
 * Share of the network's faults for each message. The servers' connections are TCP, so messages are lost and reordered only
 * when these break; at the rates of single messages, hardly any link would live long enough for a session.
 */
const faultShare = 0.05;
/** Additional delay of a reordered message, in milliseconds. */
const reorderMsMax = 20;
/** NATS' `max_payload` here, in bytes: small, so that runs contain messages in several parts. */
export const simPayloadBytesMax = 9 * 1024;

interface Interest {
  readonly endpoint: Endpoint;
  readonly pattern: string;
  readonly handler: (message: BusMessage) => void;
}

/** The access of one run of a process. */
export interface SimNodeBus extends Pick<Bus, "publish" | "subscribe"> {
  /** A node presents its certificate to the servers, which then let it use its own subjects alone. `identity`: null without one. */
  present(nodeId: string, identity: Peer["identity"]): void;
  /** The node's last connection, as the servers report it to managers; null if it has none. */
  peerOf(nodeId: string): Peer | null;
}

export class SimSubjects {
  readonly #network: SimNetwork;
  readonly #random: SimRandom;
  readonly #interests = new Set<Interest>();
  readonly #peers = new Map<string, Peer>();
  /** Arrival of the last ordered message, by sender and receiver. */
  readonly #lastArrivals = new Map<string, number>();

  constructor(network: SimNetwork, random: SimRandom) {
    this.#network = network;
    this.#random = random;
  }

  of(endpoint: Endpoint): SimNodeBus {
    return {
      present: (nodeId, identity) => this.#peers.set(nodeId, { identity, local: false, address: endpoint.name }),
      peerOf: (nodeId) => this.#peers.get(nodeId) ?? null,
      publish: (subject, data) => this.#publish(endpoint, subject, data),
      subscribe: (pattern, handler) => {
        const interest = { endpoint, pattern, handler };
        this.#interests.add(interest);
        return { unsubscribe: () => this.#interests.delete(interest) };
      },
    };
  }

  #publish(from: Endpoint, subject: string, data: Uint8Array): void {
    if (!from.clock.alive) return;
    for (const interest of Array.from(this.#interests)) {
      if (!interest.endpoint.clock.alive) this.#interests.delete(interest);
      else if (matches(interest.pattern, subject)) this.#carry(from, interest, subject, data);
    }
  }

  #carry(from: Endpoint, interest: Interest, subject: string, data: Uint8Array): void {
    const { faults, trace } = this.#network;
    if (this.#network.isCut(from.name, interest.endpoint.name)) return;
    if (this.#random.chance(faults.loss * faultShare)) {
      trace.mark("link.message.lost");
      return;
    }
    const copies = this.#random.chance(faults.duplication * faultShare) ? 2 : 1;
    for (let copy = 0; copy < copies; copy += 1) this.#deliver(from, interest, subject, data);
  }

  #deliver(from: Endpoint, interest: Interest, subject: string, data: Uint8Array): void {
    const { endpoint, handler } = interest;
    const { clock, faults } = this.#network;
    const pair = `${from.name}>${endpoint.name}`;
    let arrival = clock.elapsed + this.#network.latencyMs();
    if (this.#random.chance(faults.reordering * faultShare)) arrival += this.#random.between(0, reorderMsMax);
    else {
      arrival = Math.max(arrival, this.#lastArrivals.get(pair) ?? 0);
      this.#lastArrivals.set(pair, arrival);
    }
    const message = { subject, data: data.slice(), headers: {}, respond: () => {} };
    endpoint.clock.after(arrival - clock.elapsed, () => {
      if (this.#interests.has(interest) && !this.#network.isCut(from.name, endpoint.name)) handler(message);
    });
  }
}
