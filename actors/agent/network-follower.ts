/**
 * The agent's side of the Networks service: the members of the networks of this node's tasks, kept across sessions with
 * different managers.
 *
 * NF1: while no manager is reachable, the last received state stays in use.
 */
import { FollowedNetworks, type NetworksState, type NodeNetworks } from "../../machines/networks/state.ts";
import { NetworksFollowRequest, NetworksService, type NetworksUpdate } from "../../proto/gen/messages.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import { ManagerStream, type ManagerStreamPorts } from "./manager-stream.ts";

export class NetworkFollower implements NodeNetworks {
  readonly #followed = new FollowedNetworks();
  readonly #stream: ManagerStream<NetworksUpdate>;
  readonly #listeners = new Set<(state: NetworksState) => void>();

  /** `name`: the agent's name, for the actor's id. */
  constructor(ports: ManagerStreamPorts, name: string) {
    const followed = this.#followed;
    this.#stream = new ManagerStream(ports, `networks-stream/${name}`, {
      open: (channel, on) =>
        channel.serverStream(
          NetworksService.methods.Follow,
          NetworksFollowRequest.create({ version: followed.version }),
          on,
        ),
      take: (piece) => {
        const isWhole = followed.take(piece);
        const { state } = followed;
        if (isWhole && state !== null) for (const listener of this.#listeners) listener(state);
        return isWhole;
      },
      interrupted: () => followed.interrupted(),
    });
  }

  get state(): NetworksState | null {
    return this.#followed.state;
  }

  onChange(listener: (state: NetworksState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  attach(channel: RpcChannel, leave: (reason: string) => void): { cancel(): void } {
    return this.#stream.attach(channel, leave);
  }

  stop(): void {
    this.#stream.stop();
  }
}
