/**
 * A manager's nats-server of the cluster that three managers form (docs/adr/0051). Its data is in `nats-cluster-ID` in the data
 * dir, apart from that of the server that stood alone.
 */
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { NatsMovePorts } from "../actors/manager/nats-move.ts";
import { othersNeeded, type NatsMoveStage } from "../machines/manager/nats-move.machine.ts";
import {
  NatsCluster,
  NatsCluster_Stage as Stage,
  NatsMember,
  PrepareNatsRequest,
  type PrepareNatsResponse,
} from "../proto/gen/messages.ts";
import type { NatsOptions } from "../runtime/nats/connection.ts";
import { commitCopy, copyStreams, isCommitted, waitForLeader } from "../runtime/nats/move.ts";
import { freePortOf, NatsServerProblem, startNatsServer, type NatsServer } from "../runtime/nats/server.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { formatHostPort, type HostPort } from "./addresses.ts";
import type { NatsIdentity } from "./nats-identity.ts";

/** Ports of a server of the cluster if they are free, counted from the manager's own. */
const routePortAfter = 2;
const clientPortAfter = 3;
/** Between two questions to the own server whether the cluster has the log, in milliseconds: all managers wait for it. */
const askMs = 250;

const prefix = "nats-cluster-";

export interface ClusterParts {
  readonly dataDir: string;
  readonly vault: Vault;
  readonly identity: NatsIdentity;
  readonly managerId: string;
  /** Where the manager listens, and the host at which others reach it. */
  readonly listen: HostPort;
  readonly advertisedHost: string;
  readonly telemetry: Telemetry;
}

/** The member of that manager; undefined if it is none. */
export function memberOf({ members }: NatsCluster, managerId: string): NatsMember | undefined {
  return members.find((member) => member.managerId === managerId);
}

/** Chooses free ports. */
export async function offerMember(parts: ClusterParts, clusterId: string, revision = 0): Promise<NatsMember> {
  const { advertisedHost: host, listen, managerId } = parts;
  const client = await freePortOf([listen.port + clientPortAfter], listen.host);
  let route = await freePortOf([listen.port + routePortAfter], listen.host);
  while (route === client) route = await freePortOf([], listen.host);
  return NatsMember.create({
    managerId,
    // NATS never takes a server of the same name back at once: one that returns needs another.
    serverName: `muster-${managerId}-${clusterId}${revision === 0 ? "" : `-${revision}`}`,
    url: `nats://${formatHostPort({ host, port: client })}`,
    route: formatHostPort({ host, port: route }),
  });
}

/** Folder of the server of that cluster in a data dir. */
export function memberFolder(dataDir: string, clusterId: string): string {
  return join(dataDir, `${prefix}${clusterId}`);
}

/** Throws NatsServerProblem. */
export async function startMember(parts: ClusterParts, cluster: NatsCluster): Promise<NatsServer> {
  const { dataDir, identity, listen, managerId, telemetry } = parts;
  const member = memberOf(cluster, managerId);
  if (member === undefined) throw new Error(`${managerId} is not a member of the NATS cluster ${cluster.id}`);
  removeOthers(dataDir, cluster.id);
  const folder = memberFolder(dataDir, cluster.id);
  const binary = process.env["MUSTER_NATS_SERVER"];
  const server = await startNatsServer({
    dataDir: folder,
    logFile: join(folder, "nats.log"),
    telemetry,
    tls: identity.serverTls,
    host: listen.host,
    port: Number(new URL(member.url).port),
    cluster: {
      name: `muster-${cluster.id}`,
      serverName: member.serverName,
      route: member.route,
      routes: cluster.members.map(({ route }) => `nats://${route}`),
    },
    ...(binary ? { binary } : {}),
  });
  identity.onRenewed(({ isNarrower }) => (isNarrower ? server.renew("a CA of NATS was replaced") : server.reload()));
  return server;
}

/** Removes what earlier attempts to form a cluster left. */
function removeOthers(dataDir: string, id: string): void {
  for (const name of readdirSync(dataDir))
    if (name.startsWith(prefix) && name !== `${prefix}${id}`) rmSync(join(dataDir, name), { recursive: true });
}

/** Options of a connection to this manager's server of the cluster alone. */
export function ownMemberAccess(parts: ClusterParts, cluster: NatsCluster): NatsOptions {
  const { identity, managerId, telemetry } = parts;
  const servers = [memberOf(cluster, managerId)?.url ?? ""];
  return { servers, tls: identity.clientTls, name: `muster-manager-${managerId}-move`, telemetry, replicas: 3 };
}

/** The server of the cluster that runs beside the one with the log, before the log has moved. */
export interface Beside {
  /** For the other manager, whose server has the log. Rejects with RpcError. */
  prepare(request: PrepareNatsRequest): Promise<NatsMember>;
  /** Starts the server of the cluster that was prepared before. */
  resume(cluster: NatsCluster): Promise<void>;
  stop(): Promise<void>;
}

/** `onMoved`: called once, when the cluster has the log and that is saved. */
export function createBeside(parts: ClusterParts, onMoved: () => void): Beside {
  const { managerId, telemetry, vault } = parts;
  let running: { readonly id: string; readonly server: NatsServer } | null = null;
  let isStopped = false;
  let asking: NodeJS.Timeout | undefined;
  /** One request at a time. */
  let queue: Promise<unknown> = Promise.resolve();

  const end = async (): Promise<void> => {
    clearTimeout(asking);
    await running?.server.stop();
    running = null;
  };
  const ask = async (cluster: NatsCluster): Promise<void> => {
    const has = await isCommitted(ownMemberAccess(parts, cluster)).catch(() => false);
    if (isStopped || running?.id !== cluster.id) return;
    if (has) {
      vault.update({ natsCluster: NatsCluster.patch(cluster, { stage: Stage.MOVED }), natsServers: [] });
      telemetry.log.info({ cluster: cluster.id }, "the log is in a cluster of three nats-servers");
      return onMoved();
    }
    asking = setTimeout(() => void ask(cluster), askMs);
  };
  const start = async (cluster: NatsCluster): Promise<void> => {
    if (running?.id === cluster.id) return;
    await end();
    const server = await startMember(parts, cluster);
    if (isStopped) return server.stop();
    running = { id: cluster.id, server };
    void ask(cluster);
  };
  return {
    prepare(request) {
      const work = async (): Promise<NatsMember> => {
        const { clusterId, members, revision } = request;
        if (vault.fields.natsServers.length === 0)
          throw new RpcError(Status.FAILED_PRECONDITION, "this manager has a NATS of its own");
        if (members.length === 0) {
          // The earlier attempt was given up: its server would keep the usual ports, and the new one would have others.
          if (running !== null && running.id !== clusterId) await end();
          return offerMember(parts, clusterId, revision);
        }
        const cluster = NatsCluster.create({ id: clusterId, members, stage: Stage.PREPARED, revision });
        const own = memberOf(cluster, managerId);
        if (own === undefined) throw new RpcError(Status.INVALID_ARGUMENT, "this manager is not among the members");
        vault.update({ natsCluster: cluster });
        await start(cluster).catch((error: unknown) => {
          throw error instanceof NatsServerProblem ? new RpcError(Status.FAILED_PRECONDITION, error.message) : error;
        });
        return own;
      };
      const result = queue.then(work);
      queue = result.catch(() => undefined);
      return result;
    },
    resume: (cluster) => start(cluster),
    async stop() {
      isStopped = true;
      await queue;
      await end();
    },
  };
}

/** Asks the manager at an address for PrepareNats. */
export type CallPrepare = (address: string, request: PrepareNatsRequest) => Promise<PrepareNatsResponse>;

/**
 * The move's part of the manager whose own server has the log. `source`: a connection to it that nobody else has, when copying.
 */
export function movePorts(
  parts: ClusterParts,
  options: {
    readonly newId: () => string;
    readonly callPrepare: CallPrepare;
    readonly source: NatsOptions | null;
    readonly restart: () => void;
  },
): NatsMovePorts & { stop(): Promise<void> } {
  const { vault } = parts;
  let server: NatsServer | null = null;
  let cluster: NatsCluster | null = vault.fields.natsCluster;
  const end = async (): Promise<void> => {
    await server?.stop();
    server = null;
  };
  const target = (): NatsOptions => {
    if (cluster === null) throw new Error("there is no cluster to move the log to");
    return ownMemberAccess(parts, cluster);
  };
  return {
    async gather(addresses) {
      await end();
      const id = options.newId();
      const offers: { readonly address: string; readonly member: NatsMember }[] = [];
      let reason = "";
      for (const address of addresses) {
        if (offers.length === othersNeeded) break;
        try {
          const { member } = await options.callPrepare(address, PrepareNatsRequest.create({ clusterId: id }));
          if (member !== null) offers.push({ address, member });
        } catch (error) {
          reason ||= `${address}: ${(error as Error).message}`;
        }
      }
      if (offers.length < othersNeeded) throw new Error(reason === "" ? "a manager has left" : reason);
      const members = [await offerMember(parts, id), ...offers.map(({ member }) => member)];
      cluster = NatsCluster.create({ id, members, stage: Stage.PREPARED });
      const request = PrepareNatsRequest.create({ clusterId: id, members });
      const own = cluster;
      await Promise.all([
        startMember(parts, own).then((started) => (server = started)),
        ...offers.map(({ address }) => options.callPrepare(address, request)),
      ]);
      await waitForLeader(target());
    },
    async copy() {
      if (options.source === null) throw new Error("the old server still serves others");
      await copyStreams(options.source, target());
    },
    commit: () => commitCopy(target()),
    isCommitted: () => isCommitted(target()),
    save(stage: NatsMoveStage | "moved") {
      if (stage === "none" || cluster === null) return vault.update({ natsCluster: null });
      const stages = { moving: Stage.MOVING, committing: Stage.COMMITTING, moved: Stage.MOVED };
      vault.update({ natsCluster: NatsCluster.patch(cluster, { stage: stages[stage] }) });
    },
    restart: options.restart,
    stop: end,
  };
}
