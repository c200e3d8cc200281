/**
 * Which NATS a manager without `--nats` uses: a nats-server of its own, or, if it has joined, that of the other managers. They
 * tell it over mutual TLS, with the cluster's certificates, where that is and give it the CA of NATS (docs/adr/0051).
 */
import { existsSync } from "node:fs";
import { timeMs } from "../proto/time.ts";
import { sentence } from "../actors/sentence.ts";
import type { Running } from "../actors/environment.ts";
import type { DataKeyParts, FetchKeys } from "../actors/keys/data-keys.ts";
import type { NatsAuthorityPorts } from "../actors/keys/nats-authority.ts";
import { startNatsMembers } from "../actors/manager/nats-members.ts";
import { startNatsMove } from "../actors/manager/nats-move.ts";
import { NatsCluster, NatsCluster_Stage as Stage, type GetDataKeysResponse } from "../proto/gen/messages.ts";
import type { Host } from "../runtime/host.ts";
import type { NatsOptions } from "../runtime/nats/connection.ts";
import { NatsProblem } from "../runtime/nats/errors.ts";
import { showUrl, type NatsServer } from "../runtime/nats/server.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import type { Troubles } from "../runtime/ports/troubles.ts";
import type { Store } from "../runtime/store/store.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { UserError } from "../lib/user-error.ts";
import { ownNatsFolder, setOwnNatsAside, startStandalone } from "./move-own-nats.ts";
import { createBeside, memberOf, movePorts, startMember, type CallPrepare, type ClusterParts } from "./nats-cluster.ts";
import { makeAuthority, newerAuthorities, openNatsIdentity } from "./nats-identity.ts";
import { isMember, membersPorts, refreshMembers, untilCurrent, watchForRelease } from "./nats-members.ts";
import { unlessEnding } from "./signals.ts";

/** Kerberos's customary limit. Leases and certificates tolerate much more, but times of tasks would not be comparable. */
const clockSkewMsMax = 5 * 60_000;

/** Whether a manager with this data dir uses other managers' NATS, once it has joined. */
export function usesOthersNats(dataDir: string, vault: Vault, isJoining: boolean): boolean {
  const { natsCluster, natsServers } = vault.fields;
  if (natsServers.length > 0) return true;
  if (natsCluster !== null) return false;
  return !existsSync(ownNatsFolder(dataDir)) && (isJoining || vault.fields.nodeCertificate !== "");
}

/**
 * Asks managers, in this order, for the CA and the addresses of their NATS, and saves them. A manager that knows them continues
 * with these if none answers. Throws UserError.
 */
export async function learnNats(
  vault: Vault,
  managerId: string,
  managers: readonly string[],
  fetchKeys: FetchKeys,
): Promise<void> {
  let reason = "";
  for (const address of managers) {
    let answer: GetDataKeysResponse;
    try {
      answer = await fetchKeys(address, "");
    } catch (error) {
      reason ||= `${address}: ${sentence(error)}`;
      continue;
    }
    const { natsCaCertificate, natsCaKey, natsServers } = answer;
    if (natsServers.length === 0)
      throw new UserError(
        `the manager at ${address} has no NATS of its own: set --nats to the NATS that the managers of its cluster share`,
      );
    const own = vault.fields.natsCluster;
    const { natsCluster: theirs } = answer;
    // The log has moved to the cluster that this manager's server was prepared for, while it was not running.
    const hasMoved =
      theirs !== null && own !== null && theirs.id === own.id && memberOf(theirs, managerId) !== undefined;
    // A list that has a revision has been used by this cluster's managers; before, all of them have the first CA.
    const authorities = newerAuthorities(vault, answer.natsAuthorities);
    vault.update({
      ...(authorities ?? (vault.fields.natsCaKey === "" ? { natsCaCertificate, natsCaKey } : {})),
      natsServers: hasMoved ? [] : natsServers,
      natsCluster: hasMoved ? NatsCluster.patch(own, { stage: Stage.MOVED }) : theirs === null ? own : null,
    });
    return;
  }
  if (vault.fields.natsServers.length > 0) return;
  throw new UserError(
    reason === ""
      ? "this manager does not know where its cluster's NATS is: set --join to the address of another manager"
      : `cannot learn where the cluster's NATS is (${reason}): start another manager, or set --join to the address of one`,
  );
}

/** For a manager that has just joined: rejects with UserError if the clocks differ by more than five minutes. */
export async function refuseOtherTime(address: string, fetchKeys: FetchKeys): Promise<void> {
  const askedAtMs = Date.now();
  // Without an answer there is nothing to compare, and the start continues with what does answer.
  const answer = await fetchKeys(address, "").catch(() => null);
  if (answer === null || answer.answeredAt === null) return;
  const sentenceOrNull = otherTime(timeMs(answer.answeredAt), { askedAtMs, nowMs: Date.now() });
  if (sentenceOrNull !== null) throw new UserError(`${sentenceOrNull} that of the manager at ${address}: ${setIt}`);
}

const setIt = "set it, for example with an NTP client, and join again";

/** How this machine's clock differs from another's that read `theirsMs` between two times of ours; null: not by too much. */
function otherTime(theirsMs: number, { askedAtMs, nowMs }: Readonly<Record<"askedAtMs" | "nowMs", number>>) {
  const aheadMs = theirsMs < askedAtMs ? askedAtMs - theirsMs : theirsMs > nowMs ? nowMs - theirsMs : 0;
  if (Math.abs(aheadMs) <= clockSkewMsMax) return null;
  const minutes = Math.round(Math.abs(aheadMs) / 60_000);
  return `this machine's clock is ${minutes} minutes ${aheadMs > 0 ? "ahead of" : "behind"}`;
}

interface ManagersNats {
  /** Options of a connection. */
  readonly access: Pick<NatsOptions, "servers" | "tls" | "replicas">;
  /** The own server that has the log, or a copy of it; null if this manager uses those of others. */
  readonly server: NatsServer | null;
  /** Whether that server belongs to a cluster. */
  readonly isClustered: boolean;
  /** Whether other managers said at the start that this one is none any more, while the cluster still needs its server. */
  readonly isDenied: boolean;
  /** For the operator. */
  readonly warnings: readonly string[];
  /** For other managers. */
  readonly forOthers: Pick<Required<DataKeyParts>, "natsServers" | "natsCluster" | "prepareNats" | "natsAuthorities">;
  /** To be called when the manager serves: moves the log when there are managers for a cluster, and keeps the cluster whole. */
  startUpkeep(serving: Serving): Running | null;
  /** For a manager that was demoted: resolves once nobody needs its server any more. */
  released(): Promise<void>;
  stop(): Promise<void>;
}

/** The parts of a serving manager. */
interface Serving {
  readonly store: Store;
  readonly troubles: Troubles;
  /** See `NatsLink`. */
  readonly useServers: (servers: readonly string[]) => void;
}

interface Opening extends Omit<ClusterParts, "identity"> {
  readonly host: Host;
  readonly ending: AbortSignal;
  readonly newId: () => string;
  readonly callPrepare: CallPrepare;
  readonly fetchKeys: FetchKeys;
  readonly tellAuthorities: NatsAuthorityPorts["tell"];
  /** Ends this life of the manager; the next one continues from what is saved. */
  readonly restart: () => void;
}

/** Continues a move that was begun. Throws NatsServerProblem and Interrupted. */
export async function openManagersNats(opening: Opening): Promise<ManagersNats> {
  const { advertisedHost, dataDir, telemetry, vault } = opening;
  const identity = await openNatsIdentity(dataDir, vault, { telemetry, host: advertisedHost });
  const undo: (() => Promise<void> | void)[] = [() => identity.stop()];
  const stop = async (): Promise<void> => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  const natsAuthorities: NatsAuthorityPorts = {
    list: () => identity.authorities,
    use: (list) => identity.use(list),
    make: makeAuthority,
    tell: opening.tellAuthorities,
  };
  try {
    const { forOthers, ...opened } = await open({ ...opening, identity }, undo);
    return { ...opened, forOthers: { ...forOthers, natsAuthorities }, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Undo = (() => Promise<void> | void)[];

interface Opened extends Omit<ManagersNats, "stop" | "forOthers"> {
  readonly forOthers: Omit<ManagersNats["forOthers"], "natsAuthorities">;
}

async function open(opening: Opening & ClusterParts, undo: Undo): Promise<Opened> {
  const { advertisedHost, dataDir, fetchKeys, host, identity, listen, managerId, restart, telemetry, vault } = opening;
  const tls = identity.clientTls;
  const stage = vault.fields.natsCluster?.stage;
  if (stage === Stage.MOVING || stage === Stage.COMMITTING) await continueMove(opening);
  let isDenied = false;
  if (vault.fields.natsCluster?.stage === Stage.MOVED) {
    setOwnNatsAside(dataDir);
    isDenied = await refreshMembers({ vault, managerId, identity }, fetchKeys);
  }
  // The others may have gone on without this one.
  const cluster = vault.fields.natsCluster;
  if (cluster !== null && cluster.stage === Stage.MOVED) {
    const server = await startMember(opening, cluster);
    undo.push(() => server.stop());
    // The next manager's server is restarted only then.
    identity.onRenewed(({ isNarrower }) => (isNarrower ? untilCurrent(opening, server) : undefined));
    if (isDenied && !(await isMember(opening, server))) throw new UserError(replacedSentence);
    const urls = (): readonly string[] => (vault.fields.natsCluster ?? cluster).members.map(({ url }) => url);
    return {
      access: { servers: urls(), tls, replicas: 3 },
      server,
      isClustered: true,
      isDenied,
      warnings: [],
      forOthers: {
        natsServers: urls,
        natsCluster: () => vault.fields.natsCluster,
        prepareNats: () => refused("a server of its own"),
      },
      startUpkeep: ({ store, troubles, useServers }) => {
        const ports = membersPorts(opening, { ...opening, server, useServers });
        return startNatsMembers({ host, managerId, telemetry }, ports, { store, troubles });
      },
      released: () => {
        const watch = watchForRelease(opening, server);
        undo.push(() => watch.stop());
        return watch.released;
      },
    };
  }
  const others = vault.fields.natsServers;
  if (others.length > 0) {
    const beside = createBeside(opening, restart);
    undo.push(() => beside.stop());
    if (cluster !== null)
      await beside.resume(cluster).catch((error: unknown) => {
        telemetry.log.warn({ error: String(error) }, "cannot start the nats-server of a cluster that was prepared");
      });
    return {
      access: { servers: others, tls, replicas: others.length >= 3 ? 3 : 1 },
      server: null,
      isClustered: false,
      isDenied: false,
      warnings: others.length >= 3 ? [spareSentence] : [],
      forOthers: {
        natsServers: () => vault.fields.natsServers,
        natsCluster: () => null,
        prepareNats: (request) => beside.prepare(request),
      },
      startUpkeep: () => null,
      released: never,
    };
  }
  // This manager was ended while it formed a cluster.
  if (cluster !== null) vault.update({ natsCluster: null });
  const keepsPort = vault.fields.peers.length > 0;
  const place = { host: listen.host, firstPort: listen.port + 1, ownPort: listen.port, keepsPort };
  const server = await startStandalone(dataDir, identity, telemetry, place);
  undo.push(() => server.stop());
  return {
    access: { servers: [server.url], tls },
    server,
    isClustered: false,
    isDenied: false,
    warnings: [],
    forOthers: {
      natsServers: () => [showUrl(advertisedHost, server.port)],
      natsCluster: () => null,
      prepareNats: () => refused("the log of its cluster"),
    },
    startUpkeep: ({ store }) => {
      const ports = movePorts(opening, { ...opening, source: null });
      const move = startNatsMove({ host, managerId, telemetry }, ports, { stage: "none", store });
      undo.push(() => ports.stop());
      return move;
    },
    released: never,
  };
}

/** A server with the only copy, or none of its own. */
function never(): Promise<never> {
  return new Promise(() => {});
}

const replacedSentence =
  "this manager was demoted or removed, and its cluster goes on without its nats-server: to join again, start it with another --data-dir and --join";

const spareSentence =
  "Three other managers keep the log's copies, and this one keeps none: it leads and serves nodes like them, but the cluster still needs two of those three.";

function refused(what: string): Promise<never> {
  return Promise.reject(new RpcError(Status.FAILED_PRECONDITION, `this manager's NATS has ${what}`));
}

/** Resolves when the log is in the cluster, or the move was given up; both are then saved. */
async function continueMove(opening: Opening & ClusterParts): Promise<void> {
  const { dataDir, ending, host, identity, managerId, telemetry, vault } = opening;
  const cluster = vault.fields.natsCluster;
  if (cluster === null) return;
  const old = await startStandalone(dataDir, identity, telemetry, { isHidden: true });
  try {
    const member = await startMember(opening, cluster);
    const source = { servers: [old.url], tls: identity.clientTls, name: `muster-manager-${managerId}-move`, telemetry };
    const ports = movePorts(opening, { ...opening, source });
    const stage = cluster.stage === Stage.COMMITTING ? "committing" : "moving";
    const move = startNatsMove({ host, managerId, telemetry }, ports, { stage, store: null });
    try {
      await unlessEnding(move.ended, ending);
    } finally {
      move.stop();
      await member.stop();
    }
  } finally {
    await old.stop();
  }
}

/** The NATS that this manager shares with others does not answer now; a later attempt may succeed. */
export class NatsAway extends UserError {
  override readonly name = "NatsAway";
}

/**
 * Turns a failed connection to the managers' NATS into an error that says what to do. It is NatsAway if this manager is a member
 * of the cluster and depends on other machines: they may only start later, or be down for now.
 */
export function unreachedNats(
  error: unknown,
  { isClustered, server }: Pick<ManagersNats, "server" | "isClustered">,
  isMember: boolean,
): unknown {
  if (!(error instanceof NatsProblem)) return error;
  const isAway = error.kind === "unreachable" || error.kind === "unavailable";
  const usesOthers = server === null;
  let message = error.message;
  if (usesOthers && error.kind === "unreachable") {
    const [what = ""] = message.split(": ");
    message = `${what}: check that the manager there is running, and that managers reach each other at this port too`;
  }
  if (isAway && isMember && (usesOthers || isClustered)) return new NatsAway(message, { cause: error });
  return usesOthers ? new UserError(message, { cause: error }) : error;
}
