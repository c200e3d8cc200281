/** Where storage plugins are found. Real plugins listen on Unix sockets (`edges/csi/`); the simulator has its own. */
import type { Subscription } from "./index.ts";
import type { RpcChannel } from "./rpc.ts";

export interface CsiSockets {
  /** Names of the available plugins, as volumes use them for their driver. */
  names(): readonly string[];
  /** Reports each change of `names()`. */
  onChange(listener: () => void): Subscription;
  /** Rejects with RpcError UNAVAILABLE if nobody listens. */
  dial(name: string): Promise<RpcChannel>;
}

/** For managers and agents without plugins. */
export const noCsiSockets: CsiSockets = {
  names: () => [],
  onChange: () => ({ unsubscribe: () => {} }),
  dial: () => Promise.reject(new Error("there are no storage plugins")),
};
