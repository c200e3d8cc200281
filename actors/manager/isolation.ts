/**
 * Hosts `machines/manager/isolation.machine.ts`: asks the other managers directly, since a manager that is cut off from the log
 * mostly cannot use the bus either.
 */
import { isolationMachine, mayServe, type PeerHealth } from "../../machines/manager/isolation.machine.ts";
import type { Environment, Running } from "../environment.ts";
import type { Progress } from "./progress.ts";

/** Asks the manager at `host:port` for its health, as SwarmKit's managers do; never rejects. */
export type AskPeer = (address: string) => Promise<PeerHealth>;

interface IsolationParts {
  readonly progress: Pick<Progress, "onChange">;
  readonly askPeer: AskPeer;
  /** Own `host:port`. */
  readonly addr: string;
  /** Ends all sessions, and rejects new ones until `serveNodes`. */
  readonly sendNodesAway: () => void;
  readonly serveNodes: () => void;
}

export function startIsolation(env: Environment, parts: IsolationParts): Running {
  const { host, managerId, store, telemetry } = env;
  let isStopped = false;

  const askPeers = async (): Promise<void> => {
    const others = [...store.all("manager")].filter(({ alive, id }) => alive && id !== managerId);
    const addresses = others.map(({ addr }) => addr).filter((addr) => addr !== "" && addr !== parts.addr);
    const answers = await Promise.all(addresses.map(parts.askPeer));
    if (!isStopped) hosted.send({ type: "peers.answered", mayServe: mayServe(answers) });
  };

  const hosted = host.start(isolationMachine, `isolation/${managerId}`, undefined, {
    effects: {
      askPeers: () => void askPeers(),
      sendNodesAway: () => {
        telemetry.log.error({}, "this manager is cut off from the log: sending its nodes to other managers");
        parts.sendNodesAway();
      },
      serveNodes: () => {
        telemetry.log.info({}, "this manager reaches the log again: serving nodes");
        parts.serveNodes();
      },
    },
  });
  parts.progress.onChange((isStuck) => {
    if (!isStopped) hosted.send({ type: isStuck ? "progress.lost" : "progress.made" });
  });
  return {
    stop: () => {
      isStopped = true;
      hosted.stop();
    },
  };
}
