/** The stock engine of a move, through its own Engine API. */
import type { Membership, MovedEngine } from "./move.ts";
import { asked, engineAt } from "./swarm.ts";

interface Info {
  readonly Name: string;
  readonly Swarm: {
    readonly NodeID: string;
    readonly LocalNodeState: "inactive" | "pending" | "active" | "error" | "locked";
    readonly ControlAvailable: boolean;
  };
}

/** An engine answers within 20 s whether it has joined, and continues then; leaving stops its tasks first (milliseconds). */
const membershipMsMax = 120_000;
/** Label of the containers of a node's tasks. */
const taskLabel = "com.docker.swarm.task.id";
/** Docker's client listens there by default. */
const listenAddress = "0.0.0.0:2377";

/** Rejects with UserError. */
export async function movedEngine(endpoint: string): Promise<MovedEngine & { close(): void }> {
  const engine = engineAt(endpoint);
  const info = (): Promise<Info> => asked(endpoint, engine.json<Info>("GET", "/info"));
  const { Name: name } = await info().catch((error: unknown) => {
    engine.close();
    throw error;
  });
  return {
    name,
    async membership(): Promise<Membership> {
      const { ControlAvailable: isManager, LocalNodeState: state, NodeID: nodeId } = (await info()).Swarm;
      if (state === "inactive") return { state: "away", nodeId: "", isManager: false };
      return { state: state === "active" ? "member" : "joining", nodeId, isManager };
    },
    async tasks() {
      const filters = JSON.stringify({ label: [taskLabel] });
      return (await asked(endpoint, engine.json<readonly unknown[]>("GET", "/containers/json", { query: { filters } })))
        .length;
    },
    async leave(isForced) {
      const query = { force: isForced };
      await asked(endpoint, engine.json("POST", "/swarm/leave", { query, timeoutMs: membershipMsMax }));
    },
    async join(token, addresses) {
      const body = { ListenAddr: listenAddress, RemoteAddrs: addresses, JoinToken: token };
      await asked(endpoint, engine.json("POST", "/swarm/join", { body, timeoutMs: membershipMsMax }));
    },
    close: () => engine.close(),
  };
}
