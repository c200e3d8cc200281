/** A Swarm as one of the two clusters between which engines move, through the Engine API of one of its managers. */
import { UserError } from "../../lib/user-error.ts";
import { isAbsent } from "../../drivers/docker/engine.ts";
import type { Availability, Cluster } from "./move.ts";
import { asked, engineAt } from "./swarm.ts";

interface SwarmNode {
  readonly Version: { readonly Index: number };
  readonly Spec: {
    readonly Role: "worker" | "manager";
    readonly Availability: Availability;
    readonly Labels?: Readonly<Record<string, string>> | null;
  };
  readonly Status: { readonly State: string };
}

/** Attempts of an update that meets concurrent writers: a node's status is in its record. */
const updateAttemptsMax = 20;

interface SwarmSide extends Cluster {
  /** Node id of the manager that answers. */
  readonly managerId: string;
  close(): void;
}

/** Rejects with UserError. */
export async function swarmSide(endpoint: string): Promise<SwarmSide> {
  const engine = engineAt(endpoint);
  const ask = <Answer>(...request: Parameters<typeof engine.json>): Promise<Answer> =>
    asked(endpoint, engine.json<Answer>(...request));
  const close = (): void => engine.close();
  const readInfo = () =>
    ask<{
      readonly Swarm: {
        readonly NodeID: string;
        readonly ControlAvailable: boolean;
        readonly RemoteManagers?: readonly { readonly Addr: string }[] | null;
      };
    }>("GET", "/info");
  const { Swarm: own } = await readInfo().catch((error: unknown) => {
    close();
    throw error;
  });
  if (!own.ControlAvailable) {
    close();
    throw new UserError(`${endpoint} is not a manager of a Swarm: name one with --from`);
  }
  const read = async (id: string): Promise<SwarmNode | null> => {
    try {
      return await ask<SwarmNode>("GET", `/nodes/${id}`);
    } catch (error) {
      if (isAbsent((error as Error).cause)) return null;
      throw error;
    }
  };
  return {
    name: "the Swarm",
    managerId: own.NodeID,
    close,
    async node(id) {
      const found = await read(id);
      if (found === null) return null;
      const { Availability: availability, Labels: labels, Role: role } = found.Spec;
      return {
        availability,
        labels: labels ?? {},
        isManager: role === "manager",
        isReady: found.Status.State === "ready",
      };
    },
    async change(id, { availability, isManager, labels }) {
      for (let attempt = 1; ; attempt += 1) {
        const found = await read(id);
        if (found === null) throw new UserError(`the Swarm has no node ${id}`);
        const body = {
          ...found.Spec,
          ...(availability === undefined ? {} : { Availability: availability }),
          ...(isManager === undefined ? {} : { Role: isManager ? "manager" : "worker" }),
          ...(labels === undefined ? {} : { Labels: labels }),
        };
        try {
          await ask("POST", `/nodes/${id}/update`, { query: { version: found.Version.Index }, body });
          return;
        } catch (error) {
          const isConflict = (error as Error).message.includes("update out of sequence");
          if (!isConflict || attempt === updateAttemptsMax) throw error;
        }
      }
    },
    async remove(id) {
      try {
        await ask("DELETE", `/nodes/${id}`, { query: { force: true } });
      } catch (error) {
        if (!isAbsent((error as Error).cause)) throw error;
      }
    },
    async entry(asManager) {
      const [{ JoinTokens: tokens }, { Swarm: now }] = await Promise.all([
        ask<{ readonly JoinTokens: Readonly<Record<"Worker" | "Manager", string>> }>("GET", "/swarm"),
        readInfo(),
      ]);
      const addresses = (now.RemoteManagers ?? []).map(({ Addr: address }) => address);
      return { token: asManager ? tokens.Manager : tokens.Worker, addresses };
    },
    async tasks(nodeId) {
      const filters = JSON.stringify({ node: [nodeId], "desired-state": ["running"] });
      const tasks = await ask<readonly { readonly Status: { readonly State: string } }[]>("GET", "/tasks", {
        query: { filters },
      });
      return tasks.map(({ Status: { State: state } }) => state === "running");
    },
  };
}
