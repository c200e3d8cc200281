/** A manager's part in keeping the cluster of three nats-servers whole, while its own server belongs to it (docs/adr/0051). */
import type { FetchKeys } from "../actors/keys/data-keys.ts";
import type { NatsMembersPorts } from "../actors/manager/nats-members.ts";
import {
  NatsCluster,
  NatsCluster_Stage as Stage,
  PrepareNatsRequest,
  type NatsAuthorities,
} from "../proto/gen/messages.ts";
import { isClosedTo, readServers, removeServer } from "../runtime/nats/members.ts";
import type { NatsServer } from "../runtime/nats/server.ts";
import { systemUser } from "../runtime/nats/server-files.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { memberOf, type CallPrepare, type ClusterParts } from "./nats-cluster.ts";

/** How long a start waits for another manager's list of servers, in milliseconds. */
const refreshMs = 2_000;
/** How long the next server's restart waits for a restarted one to have everything again, and between two looks, in milliseconds. */
const currentMsMax = 30_000;
const currentCheckMs = 500;
/** Between two questions whether the cluster still has this manager's server, in milliseconds. */
const releaseCheckMs = 5_000;
/** A server that has just started finds the others within a second or two. */
const membershipAttempts = 5;
const membershipRetryMs = 1_000;

/** Id of the manager whose server has that name; empty for another program's. */
function managerOf(serverName: string): string {
  return /^muster-([^-]+)-/.exec(serverName)?.[1] ?? "";
}

function clusterIn(vault: Vault): NatsCluster {
  const cluster = vault.fields.natsCluster;
  if (cluster === null) throw new Error("this manager's nats-server has left the cluster");
  return cluster;
}

/** `useServers`: called with the servers' URLs after the list has changed. `restart`: after it has lost this manager. */
export function membersPorts(
  parts: ClusterParts,
  options: {
    readonly server: NatsServer;
    readonly callPrepare: CallPrepare;
    readonly fetchKeys: FetchKeys;
    readonly useServers: (servers: readonly string[]) => void;
    readonly restart: () => void;
  },
): NatsMembersPorts {
  const { managerId, vault } = parts;
  const { callPrepare, fetchKeys, restart, server, useServers } = options;
  const change = (members: NatsCluster["members"]): NatsCluster => {
    const cluster = clusterIn(vault);
    const changed = NatsCluster.patch(cluster, { members, revision: cluster.revision + 1 });
    vault.update({ natsCluster: changed });
    useServers(members.map(({ url }) => url));
    return changed;
  };
  return {
    async read() {
      const { copies, servers } = await readServersOf(parts, server);
      const known = clusterIn(vault).members.map(({ serverName }) => serverName);
      return { copies, known, servers: servers.map((each) => ({ ...each, managerId: managerOf(each.name) })) };
    },
    async add({ addr, id }) {
      let cluster = clusterIn(vault);
      if (memberOf(cluster, id) === undefined) {
        const offered = await callPrepare(
          addr,
          PrepareNatsRequest.create({ clusterId: cluster.id, revision: cluster.revision + 1 }),
        );
        if (offered.member === null) throw new Error(`the manager at ${addr} offers no nats-server`);
        cluster = change([...cluster.members, offered.member]);
      }
      const { id: clusterId, members, revision } = cluster;
      try {
        await callPrepare(addr, PrepareNatsRequest.create({ clusterId, members, revision }));
      } catch (error) {
        // It has not started: the next attempt has other ports.
        if (error instanceof RpcError && error.code === Status.FAILED_PRECONDITION)
          change(members.filter((member) => member.managerId !== id));
        throw error;
      }
    },
    async remove(name) {
      const { members } = clusterIn(vault);
      if (members.some(({ serverName }) => serverName === name))
        change(members.filter(({ serverName }) => serverName !== name));
      await removeServer(systemAccess(parts, server), name);
    },
    async learn(addresses) {
      const cluster = clusterIn(vault);
      const found = await Promise.all(addresses.map((address) => accessOf(address, cluster, fetchKeys)));
      const lists = found.filter((access) => access !== null).map(({ list }) => list);
      const [newest] = lists.toSorted((a, b) => b.revision - a.revision);
      if (newest === undefined || newest.revision <= clusterIn(vault).revision) return;
      takeList(vault, managerId, newest);
      if (vault.fields.natsCluster === null) return restart();
      useServers(newest.members.map(({ url }) => url));
    },
  };
}

/**
 * For a manager that starts: takes the first list of servers that another one sends, if it is newer. Without an answer the own
 * list continues, since all managers may start at once. Resolves with whether others rejected this one's certificate as a
 * manager's.
 */
export async function refreshMembers(
  { identity, managerId, vault }: Pick<ClusterParts, "identity" | "managerId" | "vault">,
  fetchKeys: FetchKeys,
): Promise<boolean> {
  const cluster = clusterIn(vault);
  let isDenied = false;
  const asked = vault.fields.peers.map(async (address) => {
    const access = await accessOf(address, cluster, fetchKeys, () => (isDenied = true));
    if (access === null) throw new Error(`${address} sends no list`);
    return access;
  });
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => (timer = setTimeout(() => resolve(null), refreshMs)));
  const first = await Promise.race([Promise.any(asked).catch(() => null), late]);
  clearTimeout(timer);
  if (first === null) return isDenied;
  if (first.list.revision > cluster.revision) takeList(vault, managerId, first.list);
  if (first.authorities !== null) await identity.use(first.authorities);
  return false;
}

/**
 * Whether the cluster has this manager's server; true if nothing answers within some seconds, but false if another server's CA is
 * not the own one any more: then the CA was replaced without this manager.
 */
export async function isMember(parts: ClusterParts, server: NatsServer): Promise<boolean> {
  const own = memberOf(clusterIn(parts.vault), parts.managerId)?.serverName ?? "";
  for (let attempt = 1; attempt <= membershipAttempts; attempt += 1) {
    const found = await readServersOf(parts, server).catch(() => null);
    if (found !== null) return found.servers.some(({ name }) => name === own);
    if (await isShutOut(parts)) return false;
    await new Promise((resolve) => setTimeout(resolve, membershipRetryMs));
  }
  return true;
}

/** Whether other managers' servers have another CA. Only for a manager that is none any more: others would get that CA. */
async function isShutOut({ identity, managerId, telemetry, vault }: ClusterParts): Promise<boolean> {
  const name = `muster-manager-${managerId}-members`;
  for (const { managerId: id, url } of clusterIn(vault).members)
    if (id !== managerId && (await isClosedTo({ servers: [url], tls: identity.clientTls, name, telemetry })))
      return true;
  return false;
}

/** Resolves once the own server has a current copy of everything, or after half a minute. */
export async function untilCurrent(parts: ClusterParts, server: NatsServer): Promise<void> {
  const own = memberOf(clusterIn(parts.vault), parts.managerId)?.serverName ?? "";
  const giveUpAt = performance.now() + currentMsMax;
  while (performance.now() < giveUpAt) {
    const found = await readServersOf(parts, server).catch(() => null);
    if (found?.copies.every((names) => names.includes(own)) === true) return;
    await new Promise((resolve) => setTimeout(resolve, currentCheckMs));
  }
}

/** A manager without a server on the list uses the servers of the others. */
function takeList(vault: Vault, managerId: string, list: NatsCluster): void {
  const isMember = memberOf(list, managerId) !== undefined;
  vault.update({
    natsCluster: isMember ? NatsCluster.patch(list, { stage: Stage.MOVED }) : null,
    natsServers: isMember ? [] : list.members.map(({ url }) => url),
  });
}

interface NatsAccess {
  readonly list: NatsCluster;
  readonly authorities: NatsAuthorities | null;
}

/** The lists of servers and CAs of the manager at that address; null without an answer, and without a list of servers. */
async function accessOf(
  address: string,
  { id }: NatsCluster,
  fetchKeys: FetchKeys,
  onDenied?: () => void,
): Promise<NatsAccess | null> {
  try {
    const { natsAuthorities: authorities, natsCluster: list } = await fetchKeys(address, "");
    return list !== null && list.id === id && list.stage === Stage.MOVED ? { list, authorities } : null;
  } catch (error) {
    if (error instanceof RpcError && error.code === Status.PERMISSION_DENIED) onDenied?.();
    return null;
  }
}

/**
 * Resolves once the cluster no longer has this manager's server: a demoted manager may then end it. Never rejects, and never
 * resolves once stopped.
 */
export function watchForRelease(parts: ClusterParts, server: NatsServer): { released: Promise<void>; stop(): void } {
  const own = memberOf(clusterIn(parts.vault), parts.managerId)?.serverName ?? "";
  const { promise, resolve } = Promise.withResolvers<void>();
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;
  const check = async (): Promise<void> => {
    // Without an answer it is still needed, unless the others have replaced the CA.
    const names = await readServersOf(parts, server).then(
      ({ servers }) => servers.map(({ name }) => name),
      async () => ((await isShutOut(parts)) ? [] : [own]),
    );
    if (isStopped) return;
    if (!names.includes(own)) return resolve();
    timer = setTimeout(() => void check(), releaseCheckMs);
  };
  void check();
  return {
    released: promise,
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}

function readServersOf(parts: ClusterParts, server: NatsServer): ReturnType<typeof readServers> {
  const { identity, managerId, telemetry, vault } = parts;
  const { members } = clusterIn(vault);
  const servers = members.map(({ url }) => url);
  const client = { servers, tls: identity.clientTls, name: `muster-manager-${managerId}-members`, telemetry };
  return readServers(
    systemAccess(parts, server),
    client,
    members.map(({ serverName }) => serverName),
  );
}

function systemAccess(parts: ClusterParts, server: NatsServer): Parameters<typeof readServers>[0] {
  const { identity, managerId, telemetry } = parts;
  const name = `muster-manager-${managerId}-system`;
  return { servers: [server.url], tls: identity.clientTls, name, telemetry, user: systemUser, pass: server.pass };
}
