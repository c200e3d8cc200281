/**
 * An intruder with copies of node and manager certificates, who keeps as many calls open as possible at every manager, and
 * reopens calls that have ended at any time.
 *
 * S91: a call that was open before never delivers a join token, and once its node is removed the intruder gets nothing new.
 */
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  NetworksFollowRequest,
  NetworksService,
  PolicyFollowRequest,
  PolicyService,
  WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
} from "../../proto/gen/messages.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimIdentity } from "../../runtime/sim/rpc.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import type { Commit } from "../../runtime/store/store.ts";

/** Interval between checks for ended calls, in milliseconds. */
const lookMsMin = 50;
const lookMsMax = 800;

interface IntruderOptions {
  readonly ports: SimPorts;
  readonly trace: SimTrace;
  readonly addresses: readonly string[];
  /** The identities of the copied certificates. */
  readonly identities: () => readonly NonNullable<SimIdentity>[];
  /** Every join token so far. */
  readonly tokens: () => readonly string[];
  readonly onWrong: (claim: string) => void;
}

interface Held {
  readonly channel: RpcChannel;
  isOpen: boolean;
  received: number;
}

type Method = MethodDescriptor<unknown, unknown>;

const watchMuch = WatchRequest.create({
  entries: ["cluster", "node"].map((kind) => WatchRequest_WatchEntry.create({ kind, action: 7 as never })),
  includeOldObject: true,
});
const ofManagers = [[WatchService.methods.Watch, watchMuch]] as const;
const ofWorkers = [
  [PolicyService.methods.Follow, PolicyFollowRequest.create({})],
  [NetworksService.methods.Follow, NetworksFollowRequest.create({})],
] as const;

/** Join tokens in a commit. */
export function joinTokensIn({ changes }: Commit): readonly string[] {
  return changes.flatMap((change) => {
    const tokens = change.table === "cluster" ? change.object.rootCa?.joinTokens : null;
    return tokens == null ? [] : [tokens.worker, tokens.manager].filter((token) => token !== "");
  });
}

export class Intruder {
  readonly #options: IntruderOptions;
  readonly #random: SimRandom;
  /** By manager, node and method. */
  readonly #held = new Map<string, Held>();

  constructor(options: IntruderOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("intruder");
  }

  start(): void {
    const look = (): void => {
      this.#look();
      this.#options.ports.clock.after(this.#random.between(lookMsMin, lookMsMax), look);
    };
    look();
  }

  /** Number of the node's calls that are open, as far as the intruder knows, and have delivered something. */
  openOf(nodeId: string): number {
    let count = 0;
    for (const [key, { isOpen, received }] of this.#held)
      if (key.includes(` ${nodeId} `) && isOpen && received > 0) count += 1;
    return count;
  }

  #look(): void {
    for (const address of this.#options.addresses) {
      for (const identity of this.#options.identities()) {
        for (const [method, request] of identity.role === "swarm-manager" ? ofManagers : ofWorkers) {
          const key = `${address} ${identity.nodeId} ${method.path}`;
          if (this.#held.get(key)?.isOpen !== true)
            this.#open(key, address, identity, method as unknown as Method, request);
        }
      }
    }
  }

  #open(key: string, address: string, identity: NonNullable<SimIdentity>, method: Method, request: unknown): void {
    const { ports, trace } = this.#options;
    this.#held.get(key)?.channel.close();
    const channel = ports.rpc.dial(address, identity);
    const held: Held = { channel, isOpen: true, received: 0 };
    this.#held.set(key, held);
    channel.serverStream(method, request, {
      onMessage: (message) => {
        held.received += 1;
        if (method.path === WatchService.methods.Watch.path) this.#read(message as WatchMessage);
      },
      onEnd: (error) => {
        held.isOpen = false;
        if (held.received > 0 && error?.code === 7) trace.mark("intruder.thrown.out");
      },
    });
  }

  /** S91 */
  #read(message: WatchMessage): void {
    const bytes = Buffer.from(WatchMessage.encode(message)).toString("latin1");
    const token = this.#options.tokens().find((each) => bytes.includes(each));
    if (token !== undefined) this.#options.onWrong(`S91: Watch sends the join token ${token}`);
  }
}
