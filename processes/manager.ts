/**
 * One life of a manager process: its data dir, its nats-server (unless it uses an external one), the manager itself, its edges and its
 * certificate. Parts stop in the reverse order.
 */
import { hostname } from "node:os";
import { join } from "node:path";
import type { ManagerIdentity } from "../actors/certificates/manager-certificate.ts";
import { startManager, type Manager } from "../actors/manager/manager.ts";
import { startBackupSchedule } from "../actors/backup/schedule.ts";
import { startManagerLock } from "../actors/keys/manager-lock.ts";
import { liveNamesake } from "../actors/manager/membership.ts";
import { startStateGauges } from "../actors/manager/state-gauges.ts";
import { createTroubles } from "../actors/manager/troubles.ts";
import { createLogins } from "../actors/json/logins.ts";
import { createAdmission } from "../edges/grpc/admission/admission.ts";
import { ListenError } from "../edges/grpc/listener.ts";
import { createExternalCa } from "../edges/cfssl/client.ts";
import type { Wrapping } from "../runtime/backup/envelope.ts";
import { BackupFolder } from "../runtime/backup/folder.ts";
import { newId } from "../runtime/ids.ts";
import { connectNats, type NatsLink } from "../runtime/nats/connection.ts";
import { watchForStuck } from "../runtime/nats/stuck-watch.ts";
import { NatsProblem } from "../runtime/nats/errors.ts";
import { NatsServerProblem } from "../runtime/nats/server.ts";
import { Host } from "../runtime/host.ts";
import * as pki from "../lib/pki/index.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { FutureRecord, LogBreak, LogLoss } from "../runtime/store/log-break.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { MarkFile, markFileName } from "../runtime/system/mark-file.ts";
import { SystemRandom } from "../runtime/system/random.ts";
import { Scrypt } from "../runtime/system/scrypt.ts";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { UserError } from "../lib/user-error.ts";
import { addressesOf, advertisedHost, formatHostPort, parseHostPort, type HostPort } from "./addresses.ts";
import { openCsi, type CsiSocketPaths } from "./csi.ts";
import { createManagerServer, keepCertificate } from "./manager-server.ts";
import { emptyLogSentence, lacksKeysForGood, refuseEmptyLog } from "./log-of-cluster.ts";
import { openDataDir, type DataDir } from "./data-dir.ts";
import { forceNewCluster } from "./force-new-cluster.ts";
import type { DockerOptions } from "./docker-api.ts";
import type { JsonOptions } from "./json-api.ts";
import { adoptIdentity, keyFileDisk, unusable } from "./key-file.ts";
import { serveLocked } from "./locked.ts";
import {
  authoritiesTeller,
  clockAsker,
  keyFetcher,
  prepareCaller,
  peerAsker,
  refuseOtherCluster,
  startJoin,
  type ManagerInvitation,
  type PendingJoin,
} from "./manager-join.ts";
import { watchOwnDemotion } from "../actors/manager/own-demotion.ts";
import type { NetworkDefaults } from "../machines/allocation/network-defaults.ts";
import { reportLogTroubles } from "./log-troubles.ts";
import { serveMetrics } from "./metrics-server.ts";
import { learnNats, openManagersNats, refuseOtherTime, unreachedNats, usesOthersNats } from "./managers-nats.ts";
import { moveOwnNats } from "./move-own-nats.ts";
import { natsAccess, replicasOn, type SharedNats } from "./shared-nats.ts";
import type { LeafNodes } from "./nodes-nats.ts";
import { unlessEnding, type Starting } from "./signals.ts";

export interface ManagerProcessOptions {
  readonly dataDir: string;
  readonly listen: HostPort;
  /** Host, or host:port, at which workers reach this manager; null: derived from `listen`. */
  readonly advertise: HostPort | null;
  /** The NATS shared with other managers; null: its own, under the data dir. */
  readonly nats: SharedNats | null;
  readonly metrics: HostPort | null;
  /** How to join an existing cluster; null: create one, or continue one joined before. */
  readonly join: ManagerInvitation | null;
  /** Called when it needs the unlock key to continue. */
  readonly onLocked?: (controlSocket: string) => void;
  /** Network defaults of a cluster that this manager creates. */
  readonly networks: NetworkDefaults;
  /** Start even if the log lacks records that this manager has seen. */
  readonly acceptsLogLoss?: boolean;
  /** Continue alone from this manager's copy of the log, once. */
  readonly forcesNewCluster?: boolean;
  /** Options of the JSON API; not served when absent. */
  readonly json?: JsonOptions | null;
  /** Options of Docker's Engine API, which is always served on a socket in the data dir. */
  readonly docker?: DockerOptions;
  /** Address of the web interface; not served when absent. */
  readonly ui?: HostPort | null;
  /** Address at which nodes connect over NATS; not served when absent. */
  readonly nodesNats?: HostPort | null;
  /** Address at which nodes connect over WebSockets, with `nodesNats`; not served when absent. */
  readonly nodesWss?: HostPort | null;
  /** Address at which leaf nodes of NATS connect, with `nodesNats`, and further names for it; not served when absent. */
  readonly leafNodes?: LeafNodes | null;
  /** Storage plugins in addition to those of the data dir. */
  readonly csiPlugins?: CsiSocketPaths;
  /** Backups that it takes by itself; null or absent: none. */
  readonly backups?: ScheduledBackups | null;
  readonly telemetry: ProcessTelemetry;
}

export interface ScheduledBackups {
  readonly dir: string;
  readonly everyMs: number;
  readonly keep: number;
  readonly history: boolean;
  readonly wrapping: Wrapping;
}

export interface ManagerProcess {
  readonly manager: Manager;
  readonly advertise: string;
  readonly controlSocket: string;
  readonly warnings: readonly string[];
  stop(): Promise<void>;
}

/** Time for streams to receive the close notice and for unary calls to finish, in milliseconds. */
const closeGraceMs = 2_000;
/** A second manager on the same NATS may wait for the first one's bootstrap. */
const readyTimeoutMs = 60_000;

export interface Life extends Starting {
  readonly kept: { vault: Vault | null };
  /** Ends this life, so that the next one continues from what is saved. */
  readonly restart: () => void;
}

/** Throws UserError with a remedy, NatsAway and Interrupted. */
export async function startManagerLife(
  options: ManagerProcessOptions,
  { ending, kept, onBroken: whenBroken, restart }: Life,
): Promise<ManagerProcess> {
  const { telemetry, listen } = options;
  const dataDir = openDataDir(options.dataDir);
  const undo: (() => Promise<void> | void)[] = [() => dataDir.release()];
  const stop = async (): Promise<void> => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  // A problem with the log aborts the start, which would otherwise wait forever.
  const broken = Promise.withResolvers<never>();
  broken.promise.catch(() => {});
  const onBroken = (error: unknown): void => {
    const problem = inOneSentence(error);
    broken.reject(problem);
    whenBroken(problem);
  };
  try {
    const random = new SystemRandom();
    const clock = new SystemClock();
    const host = new Host({
      clock,
      telemetry,
      onCrash: (actorId, error) => onBroken(new Error(`actor ${actorId} failed`, { cause: error })),
    });
    undo.push(() => host.stopAll());
    const controlSocket = join(dataDir.path, "control.sock");
    const troubles = createTroubles({ clock, telemetry });
    const lock = startManagerLock({ host, random, telemetry, disk: keyFileDisk(dataDir), opened: kept.vault });
    undo.push(() => lock.stop());
    if (lock.isLocked()) {
      const locked = await serveLocked(lock, controlSocket, telemetry);
      undo.push(() => locked.close());
      options.onLocked?.(controlSocket);
      await unlessEnding(lock.opened(), ending);
      await locked.close();
    }
    const vault = await lock.opened().catch((error: unknown) => {
      throw unusable(dataDir, error);
    });
    const isFirstLife = kept.vault === null;
    kept.vault = vault;
    adoptIdentity(dataDir, vault);
    const invitation = vault.fields.nodeCertificate === "" ? options.join : null;
    if (options.join !== null && invitation === null && isFirstLife)
      await unlessEnding(refuseOtherCluster(options.join, vault, dataDir.path), ending);
    const place = options.advertise ?? { host: advertisedHost(listen.host), port: listen.port };
    const advertise = formatHostPort(place);
    const addresses = await addressesOf(place.host);

    const fetchKeys = keyFetcher(vault);
    if (options.forcesNewCluster === true) {
      const managerId = nodeIdOf(dataDir, vault, random);
      const cluster = { dataDir: dataDir.path, vault, managerId, listen, advertisedHost: place.host, telemetry };
      await unlessEnding(forceNewCluster(dataDir, { ...cluster, fetchKeys }), ending);
    }
    const pending: { join: PendingJoin | null } = { join: null };
    const joinCluster = async (): Promise<void> => {
      if (invitation === null) return;
      const joining = startJoin(invitation, advertise, vault, telemetry);
      pending.join = joining;
      undo.push(async () => {
        await joining.withdraw();
        if (vault.fields.nodeCertificate === "") for (const file of ["node-id", markFileName]) dataDir.remove(file);
      });
      dataDir.write("node-id", `${await unlessEnding(joining.joined, ending)}\n`);
      await unlessEnding(refuseOtherTime(invitation.address, fetchKeys), ending);
    };
    const usesOthers = options.nats === null && usesOthersNats(dataDir.path, vault, invitation !== null);
    if (usesOthers) {
      await joinCluster();
      const managers = [...(options.join === null ? [] : [options.join.address]), ...vault.fields.peers];
      const learning = learnNats(vault, nodeIdOf(dataDir, vault, random), [...new Set(managers)], fetchKeys);
      await unlessEnding(learning, ending);
    }
    const managersNats =
      options.nats === null
        ? await openManagersNats({
            dataDir: dataDir.path,
            vault,
            managerId: nodeIdOf(dataDir, vault, random),
            listen,
            advertisedHost: place.host,
            telemetry,
            host,
            ending,
            newId: () => newId(random),
            callPrepare: prepareCaller(vault),
            tellAuthorities: authoritiesTeller(vault),
            fetchKeys,
            restart,
          })
        : null;
    const natsServer = managersNats?.server ?? null;
    if (managersNats !== null) undo.push(() => managersNats.stop());
    if (options.nats?.moves === true) await moveOwnNats(dataDir.path, vault, options.nats, telemetry);
    const connecting: Promise<NatsLink> = connectNats({
      servers: options.nats?.servers ?? [],
      ...(options.nats === null ? {} : { replicas: replicasOn(options.nats), ...natsAccess(options.nats) }),
      ...(managersNats === null ? {} : managersNats.access),
      // Another manager's own server is configured like this one's.
      ...(managersNats === null ? {} : { flushesEveryWrite: natsServer?.flushesEveryWrite ?? true }),
      ...(natsServer === null ? {} : { disk: natsServer.disk }),
      name: `muster-manager-${knownNodeId(dataDir) ?? "joining"}`,
      telemetry,
      signal: ending,
    });
    const link = await unlessEnding(connecting, ending).catch((error: unknown) => {
      // A late connection is closed.
      connecting.then(
        (late) => late.drain(),
        () => {},
      );
      throw managersNats === null ? error : unreachedNats(error, managersNats, invitation === null);
    });
    const stepsOfNats = undo.length;
    undo.push(() => link.drain());
    // A server of a cluster may be silent because others are: restarting it would not help.
    const watch = natsServer === null || managersNats?.isClustered === true ? null : watchForStuck(natsServer, link);
    undo.push(() => watch?.stop());
    const own = natsServer === null || watch === null ? null : { server: natsServer, watch };
    const reporting = reportLogTroubles(troubles, link, own);
    undo.push(() => reporting.stop());
    const warnings = [...link.abilities, ...(managersNats?.warnings ?? [])];
    for (const warning of warnings) telemetry.log.warn({ server: link.serverVersion }, warning);
    if (invitation !== null || vault.fields.nodeCertificate !== "")
      await unlessEnding(refuseEmptyLog(link.log, emptyLogSentence(dataDir, natsServer === null, invitation)), ending);
    if (!usesOthers) await joinCluster();
    const managerId = nodeIdOf(dataDir, vault, random);

    const csi = openCsi(dataDir.path, options.csiPlugins ?? new Map());
    undo.push(() => csi.close());
    const markDisk = new MarkFile(join(dataDir.path, markFileName));
    undo.push(() => markDisk.close());
    const denied = Promise.withResolvers<never>();
    denied.promise.catch(() => undefined);
    /** Once nodes can connect. */
    let nodesWaitMs = (): number => 0;
    const manager = startManager({
      managerId,
      clock,
      random,
      bus: link.bus,
      telemetry,
      host,
      log: link.log,
      leases: link.leases,
      blobs: link.blobs,
      authority: pki,
      externalCa: createExternalCa(() => identityIn(vault)),
      vault,
      fetchKeys,
      ...(managersNats === null ? {} : { ownNats: managersNats.forOthers }),
      askPeer: peerAsker(vault),
      askClock: clockAsker(vault),
      markDisk,
      acceptsLogLoss: options.acceptsLogLoss ?? false,
      seeds: options.join === null ? [] : [options.join.address],
      hostname: hostname(),
      advertise,
      addresses,
      isJoining: invitation !== null,
      networks: options.networks,
      warnings,
      troubles,
      nodesWaitMs: () => nodesWaitMs(),
      servers: () => link.servers(),
      copies: () => link.copies(),
      recording: {
        ring: telemetry.recorder,
        signer: () => {
          const identity = identityIn(vault);
          return identity === null ? null : { ...identity, rootPem: vault.fields.rootCertificate };
        },
      },
      csi,
      onBroken,
      onDenied: (reason) => denied.reject(new UserError(deniedSentence(managerId, reason))),
    });
    undo.push(async () => {
      // Without NATS, there is nobody to hand over to, and waiting for it would delay the next life.
      if (link.bus.isUp()) await manager.leadership.release();
      manager.stop();
    });
    await withTimeout(
      unlessEnding(
        Promise.race([manager.ready(), lacksKeysForGood(manager, vault, invitation), broken.promise]),
        ending,
      ),
      readyTimeoutMs,
      "cannot read the cluster's state: check that NATS with JetStream is running and a manager leads",
    );
    if (invitation !== null) refuseTakenAddress(manager, advertise);
    const running: ManagerProcess = { manager, advertise, controlSocket, warnings, stop };
    denied.promise.catch(onBroken);
    const demotion = watchOwnDemotion(manager.replica, managerId);
    undo.push(() => demotion.stop());
    /** Stops everything except this process's NATS, which others may use. */
    const standDown = async (): Promise<void> => {
      for (const step of undo.splice(natsServer === null ? 0 : stepsOfNats).reverse()) await step();
      if (natsServer === null) throw new UserError(demotedSentence(managerId));
      telemetry.log.warn({ manager: managerId }, `${demotedSentence(managerId)}; its nats-server keeps running`);
      void managersNats?.released().then(() => onBroken(new UserError(demotedSentence(managerId))));
    };
    const isRemoved = managersNats?.isDenied === true && manager.replica.get("node", managerId) === undefined;
    if (demotion.isDemoted() || isRemoved) {
      await standDown();
      return running;
    }
    void demotion.demoted.then(standDown).catch(onBroken);

    const identity = {
      load: () => identityIn(vault),
      save: ({ certificatePem, keyPem }: ManagerIdentity) =>
        vault.update({ nodeKey: keyPem, nodeCertificate: certificatePem }),
      trust: (rootCertificate: string) => {
        if (vault.fields.rootCertificate !== rootCertificate) vault.update({ rootCertificate });
      },
    };
    lock.follow(manager.replica);
    const passwords = new Scrypt();
    const admission = createAdmission(telemetry);
    const logins = createLogins(manager.environment, passwords);
    const server = createManagerServer(manager, lock, { logins, passwords }, telemetry, admission);
    nodesWaitMs = () => server.nodesWaitMs();
    undo.push(() => server.close(closeGraceMs));
    const certificate = await unlessEnding(
      keepCertificate(manager, identity, advertise, server, listen, (cancel) => undo.push(cancel)),
      ending,
    );
    await server.listenUnix(controlSocket);
    const { leafNodes = null, nodesNats = null, nodesWss = null } = options;
    if (nodesNats !== null) {
      const { serveNodesNats } = await import("./nodes-nats.ts");
      const serving = serveNodesNats(manager, {
        dataDir: dataDir.path,
        listen: nodesNats,
        webSockets: nodesWss,
        leafNodes:
          leafNodes === null
            ? null
            : { ...leafNodes, names: [...leafNodeNames(leafNodes, advertise), ...leafNodes.names] },
        accept: (stream, carrier) => server.accept(stream, carrier),
        calls: server.nodeCalls(),
        certificate,
        refusals: admission.refusals,
        telemetry,
      });
      const served = await unlessEnding(serving, ending);
      undo.push(() => served.stop());
    }
    // Loaded when it is served: its router and validator cost time at every other start of a process.
    const { serveDocker } = await import("./docker-api.ts");
    await serveDocker(
      manager,
      managerId,
      { server, admission, telemetry, dataDir: dataDir.path },
      options.docker ?? { group: null, listen: null },
      (end) => undo.push(end),
    );
    const { json = null, ui = null } = options;
    if (json !== null || ui !== null) {
      const { serveWeb } = await import("./web.ts");
      const serving = serveWeb(manager, { server, logins, passwords, admission, telemetry }, { json, ui }, (end) =>
        undo.push(end),
      );
      await unlessEnding(serving, ending);
    }
    if (options.metrics !== null) {
      const gauges = startStateGauges(manager.replica, () => manager.sessions(), telemetry.metrics);
      undo.push(() => gauges.stop());
      const healthy = telemetry.metrics.gauge("muster_healthy", "1 while this manager gets things done.");
      const shown = telemetry.metrics.onExpose(() => healthy.set(manager.unhealthy() === null ? 1 : 0));
      undo.push(() => shown.unsubscribe());
      const metrics = await serveMetrics(options.metrics, telemetry.metrics, () => manager.unhealthy());
      undo.push(() => void metrics.close());
    }
    const { backups = null } = options;
    if (backups !== null) {
      const scheduled = startBackupSchedule(manager.environment, {
        ...backups,
        backups: new BackupFolder(backups.dir, backups.wrapping),
        place: backups.dir,
        troubles,
        parts: (request) => manager.backupParts(request),
      });
      undo.push(() => scheduled.stop());
    }
    pending.join?.done();
    const upkeep = managersNats?.startUpkeep({
      store: manager.replica,
      troubles,
      useServers: (servers) => link.useServers(servers),
    });
    undo.push(() => upkeep?.stop());
    telemetry.log.info({ manager: managerId, advertise, controlSocket }, "manager is serving");
    return running;
  } catch (error) {
    await stop();
    throw inOneSentence(error);
  }
}

/** The names and addresses by which this machine may be known, loopback aside. */
function leafNodeNames({ listen }: LeafNodes, advertise: string): readonly string[] {
  return [...new Set([advertisedHost(listen.host), parseHostPort(advertise).host, hostname()])];
}

/** Null before this manager has an id. */
function knownNodeId(dataDir: DataDir): string | null {
  return dataDir.read("node-id")?.trim() || null;
}

function nodeIdOf(dataDir: DataDir, vault: Vault, random: SystemRandom): string {
  const known = knownNodeId(dataDir);
  if (known !== null) return known;
  // A process that was killed while it joined may have saved its certificate but not yet its id.
  const certificate = pki.describeCertificate(vault.fields.nodeCertificate);
  const id = certificate.kind === "certificate" ? certificate.nodeId : newId(random);
  dataDir.write("node-id", `${id}\n`);
  return id;
}

/** For a manager that joins: workers would reach either of the two. Throws UserError. */
function refuseTakenAddress({ environment: { managerId }, replica }: Manager, advertise: string): void {
  const other = liveNamesake(replica, managerId, advertise);
  if (other === undefined) return;
  throw new UserError(
    `the manager ${other.id} is running at the address ${advertise}, which this one advertises too: set --advertise to an address of this machine`,
  );
}

function demotedSentence(managerId: string): string {
  return (
    `this manager was demoted: run 'muster node promote ${managerId}' on another manager, ` +
    "then start this one again"
  );
}

function deniedSentence(managerId: string, reason: string): string {
  return (
    `the other managers refuse to send the log's keys (${reason}): this manager was demoted or removed. ` +
    `If it was demoted, run 'muster node promote ${managerId}' on one of them; if removed, join with another --data-dir`
  );
}

function identityIn({ fields }: Vault): ManagerIdentity | null {
  const { nodeKey: keyPem, nodeCertificate: certificatePem } = fields;
  return keyPem === "" || certificatePem === "" ? null : { keyPem, certificatePem };
}

async function withTimeout<Result>(promise: Promise<Result>, timeoutMs: number, sentence: string): Promise<Result> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new UserError(sentence)), timeoutMs);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

function remedyOf(error: LogBreak): string {
  if (error instanceof FutureRecord) return "upgrade this manager";
  if (error instanceof LogLoss)
    return "restore NATS's storage, or start this manager with --accept-log-loss to continue without them";
  return "run 'muster log check' to see what is usable, and 'muster log repair' to keep it";
}

export function inOneSentence(error: unknown): unknown {
  if (error instanceof LogBreak) return new UserError(`${error.message}; ${remedyOf(error)}`, { cause: error });
  if (error instanceof NatsProblem || error instanceof NatsServerProblem || error instanceof ListenError)
    return new UserError(error.message, { cause: error });
  return error;
}
