/** One life of a simulated manager: the real manager on simulated ports, wired like `processes/manager.ts`. */
import {
  startManagerCertificate,
  type ManagerCertificate,
  type ManagerIdentity,
} from "../../actors/certificates/manager-certificate.ts";
import { startManager, type Manager } from "../../actors/manager/manager.ts";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { startManagerLock, type ManagerLock } from "../../actors/keys/manager-lock.ts";
import { watchOwnDemotion } from "../../actors/manager/own-demotion.ts";
import {
  CAService,
  ControlService,
  DataKeysService,
  DispatcherService,
  GetDataKeysRequest,
  GetUnlockKeyRequest,
  HealthCheckRequest,
  HealthCheckResponse_ServingStatus,
  HealthService,
  InspectionService,
  NodeCAService,
  OperatorService,
  NetworksService,
  PolicyService,
  TaskAccessService,
  TaskCallsService,
  ResourceAllocatorService,
  StatusRequest,
  Trouble_Kind,
  WatchService,
  type Cluster,
  type GetUnlockKeyResponse,
} from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { LogBrokerLines, LogsLines } from "../../proto/log-lines.ts";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import { Host } from "../../runtime/host.ts";
import { newId } from "../../runtime/ids.ts";
import type { Peer, ServiceHandlers } from "../../runtime/ports/rpc.ts";
import type { SimIdentity } from "../../runtime/sim/rpc.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import type { BusObserver } from "../../runtime/store/bus-observer.ts";
import type { Keyring } from "../../runtime/store/keyring.ts";
import type { Sealing } from "../../runtime/store/seal.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import type { KeyFileDisk, Vault } from "../../runtime/store/vault.ts";
import type { LogMarkDisk } from "../../runtime/store/log-mark.ts";
import { versionIn } from "../invariants/log.ts";
import { simGate } from "./access.ts";
import { simulatedAuthority } from "./authority.ts";
import { fenced } from "../invariants/fence.ts";
import { tellingVersions } from "../invariants/sessions.ts";
import type { serveSimJson } from "./json-wire.ts";
import { serveNatsNodes } from "./nats-nodes.ts";
import { traceTransitions } from "../transitions.ts";

/** The default of `runtime/nats/leases.ts`. */
const leaseTtlMs = 3_000;
/** A manager that is not ready by then exits, and its supervisor restarts it. */
const readyTimeoutMs = 60_000;
/** The process's timeout for requests to another manager. */
const fetchTimeoutMs = 5_000;
/** The process's timeout for a question for another manager's health. */
const healthTimeoutMs = 2_000;

interface ManagerOptions {
  /** The controllers of storage plugins; null without storage. */
  readonly csi: CsiSockets | null;
  readonly address: string;
  readonly trace: SimTrace;
  /** Addresses of all managers. */
  readonly peers: readonly string[];
  /** Null: it does not serve the JSON API. */
  readonly serveJson: typeof serveSimJson | null;
  /** Records of the log after which a snapshot is written. */
  readonly snapshotEvery: number;
  /** Number of records that the log's history keeps. */
  readonly historyRecordsKept: number;
  /** An older version: agents get UNIMPLEMENTED for services that SwarmKit lacks. */
  readonly isOlder: boolean;
  /** The highest level of the log's format that its version knows. */
  readonly level: number;
  /** The operator has accepted that the log lost records. */
  readonly acceptsLogLoss: boolean;
  /**
   * A client got an object of that version. `isMarked`: false while the manager reports that it cannot write its mark, so that a
   * loss would go unnoticed.
   */
  readonly onAcknowledged: (version: number, isMarked: boolean) => void;
  /** It is about to listen. */
  readonly onServing: (replica: Replica) => void;
  /** Called first: whether the key file is locked, and how it is unlocked. */
  readonly onLock: (lock: ManagerLock) => void;
  /** Its actors, from the start of its life. */
  readonly onHost: (host: Host) => void;
  readonly onRunning: (running: RunningManager) => void;
  /** An invariant is violated. */
  readonly onWrong: (claim: string) => void;
  /** The replica found a broken log: the process must exit. */
  readonly onBroken: (error: unknown) => void;
  /** Instead of the real cipher. */
  readonly sealing: Sealing | undefined;
  /** Null: messages on the bus are not checked. */
  readonly busObserver: BusObserver | null;
  /** It was demoted, and has handed over its duties. */
  readonly onDemoted: () => void;
  /** It could not start, for instance without NATS: the process exits regularly. */
  readonly onGivenUp: (error: unknown) => void;
}

export interface RunningManager {
  readonly store: Replica;
  readonly keyring: Keyring;
  isLeading(): boolean;
  /** Why it reports itself unhealthy; null while healthy. */
  unhealthy(): string | null;
  /** Fingerprint of the key that locks its key file; empty if unlocked. */
  lock(): string;
  /** The unlock key, as given to somebody at this manager's machine; empty if there is none. */
  unlockKey(): Uint8Array;
  /** True once it listens. */
  isServing(): boolean;
  /** Its certificate and trusted roots; null before it serves. */
  certificate(): ManagerCertificate | null;
  /** The worker token; null without a cluster. */
  joinToken(): string | null;
  /** The cluster's id; empty without a cluster. */
  organization(): string;
  /** Whether it is the leader and allocates resources. */
  allocates(): boolean;
  /** Connections of the JSON API. */
  jsonConnections(): number;
  /** The allocator's number of held resources of a kind. */
  readonly held: (kind: string) => number;
}

/** Starts at once or, if the key file is locked, after it is unlocked. */
export function bootManager(ports: SimPorts, options: ManagerOptions): void {
  const { clock, random, telemetry } = ports;
  const host = new Host({ clock, telemetry, onCrash: (actorId, error) => ports.fail(actorId, error) });
  traceTransitions(host, ports.name, options.trace);
  options.onHost(host);
  const lock = startManagerLock({ host, random: random.fork("lock"), telemetry, disk: keyFile(ports) });
  options.onLock(lock);
  const go = (vault: Vault): void => options.onRunning(runManager(ports, host, { ...options, lock, vault }));
  if (lock.isLocked()) {
    options.trace.mark("manager.locked");
    lock.opened().then(go, options.onGivenUp);
  } else if (lock.vault() !== null) go(lock.vault() as Vault);
  else lock.opened().catch((error: unknown) => ports.fail("the key file", error));
}

function runManager(
  ports: SimPorts,
  host: Host,
  {
    acceptsLogLoss,
    address,
    busObserver,
    csi,
    historyRecordsKept,
    isOlder,
    level,
    lock,
    onAcknowledged,
    onServing,
    onBroken,
    onDemoted,
    onGivenUp,
    onWrong,
    peers,
    sealing,
    serveJson,
    snapshotEvery,
    trace,
    vault,
  }: ManagerOptions & { lock: ManagerLock; vault: Vault },
): RunningManager {
  const { clock, random, telemetry } = ports;
  const troubles = createTroubles({ clock, telemetry });
  const authority = simulatedAuthority(random.fork("authority"));
  const manager = startManager({
    managerId: nodeId(ports),
    clock,
    random: random.fork("manager"),
    bus: ports.bus,
    telemetry,
    host,
    log: ports.log,
    leases: ports.leases("leases", leaseTtlMs),
    blobs: ports.blobs,
    nodesWaitMs: ports.handshakeWaitMs,
    authority,
    level,
    ...(csi === null ? {} : { csi }),
    vault,
    fetchKeys: async (peer, keyId) => {
      const channel = ports.rpc.dial(peer, { nodeId: nodeId(ports), role: "swarm-manager", organization: "" });
      const request = GetDataKeysRequest.create({ keyId });
      try {
        return await channel.unary(DataKeysService.methods.GetDataKeys, request, { timeoutMs: fetchTimeoutMs });
      } finally {
        channel.close();
      }
    },
    askPeer: async (peer) => {
      const channel = ports.rpc.dial(peer, { nodeId: nodeId(ports), role: "swarm-manager", organization: "" });
      try {
        const { status } = await channel.unary(HealthService.methods.Check, HealthCheckRequest.create(), {
          timeoutMs: healthTimeoutMs,
        });
        return status === HealthCheckResponse_ServingStatus.SERVING ? "serving" : "stuck";
      } catch {
        return "unreachable";
      } finally {
        channel.close();
      }
    },
    askClock: async (peer) => {
      const channel = ports.rpc.dial(peer, { nodeId: nodeId(ports), role: "swarm-manager", organization: "" });
      try {
        const { answeredAt } = await channel.unary(OperatorService.methods.Status, StatusRequest.create(), {
          timeoutMs: healthTimeoutMs,
        });
        return timeMs(answeredAt);
      } finally {
        channel.close();
      }
    },
    seeds: peers,
    markDisk: markDisk(ports),
    acceptsLogLoss,
    hostname: ports.name,
    advertise: address,
    warnings: [],
    troubles,
    encodesAlways: true,
    sealing,
    ...(busObserver === null ? {} : { busObserver }),
    snapshots: { everyRecords: snapshotEvery, historyRecordsKept },
    // So short that resuming clients need the log.
    watch: { recentBytesMax: 20_000 },
    onBroken,
    onDenied: () => {
      trace.mark("manager.denied");
      void standDown();
    },
  });
  const cluster = (): Cluster | undefined => [...manager.replica.all("cluster")][0];
  let isServing = false;
  let held: ManagerCertificate | null = null;
  const json = serveJson?.(manager) ?? null;

  async function serve(): Promise<void> {
    const deadline = clock.setTimeout(() => onGivenUp(new Error("not ready in time")), readyTimeoutMs);
    await manager.ready();
    const demotion = watchOwnDemotion(manager.replica, nodeId(ports));
    if (demotion.isDemoted()) return standDown();
    demotion.demoted.then(standDown).catch(onGivenUp);
    lock.follow(manager.replica);
    const facts = { hostname: ports.name, advertise: address, version: "sim", architecture: "x86_64", os: "linux" };
    await new Promise<void>((resolve) => {
      startManagerCertificate(manager.environment, authority, {
        facts,
        load: () => identityIn(vault),
        save: ({ keyPem, certificatePem }) => vault.update({ nodeKey: keyPem, nodeCertificate: certificatePem }),
        onClockJump: (listener) => manager.clockWatch.onJump(listener),
        onCertificate: (certificate) => {
          held = certificate;
          resolve();
        },
      });
    });
    clock.clearTimeout(deadline);
    const { services } = manager;
    const dispatcher = fenced({
      handlers: {
        ...services.dispatcher,
        Assignments: (request, sink, call) =>
          services.dispatcher.Assignments(request, tellingVersions(sink, manager.replica), call),
      },
      recordOf: (nodeId) => manager.replica.get("session", nodeId),
      onWrong: (claim) => onWrong(`${claim} (on ${ports.name})`),
    });
    const control = acknowledging(services.control, (version) =>
      onAcknowledged(version, !troubles.all().some(({ kind }) => kind === Trouble_Kind.LOG_MARK)),
    );
    const peerOf = (identity: SimIdentity, client: string): Peer => ({ identity, local: false, address: client });
    onServing(manager.replica);
    const served = [
      { service: CAService, handlers: services.ca },
      { service: NodeCAService, handlers: services.nodeCa },
      { service: DataKeysService, handlers: services.dataKeys },
      { service: DispatcherService, handlers: dispatcher },
      { service: LogBrokerLines, handlers: services.logBroker },
      { service: LogsLines, handlers: services.logs },
      { service: TaskAccessService, handlers: services.taskAccess },
      ...(isOlder ? [] : servicesOfAgents(services)),
      { service: InspectionService, handlers: services.inspection },
      { service: HealthService, handlers: services.health },
      { service: ControlService, handlers: control },
      { service: WatchService, handlers: services.watch },
      { service: OperatorService, handlers: services.operator },
      { service: ResourceAllocatorService, handlers: services.resourceAllocator },
    ];
    const gate = simGate({
      clock,
      // Simulated managers join without a token: the log lists each only once it has the keys to write its own record.
      membership: {
        ...manager.standings,
        isDemoted: (id) => manager.replica.get("node", id) !== undefined && manager.standings.isDemoted(id),
      },
      store: manager.replica,
      onWrong: (claim) => onWrong(`${claim} (on ${ports.name})`),
      mark: (name) => trace.mark(name),
    });
    ports.rpc.serve(address, [...served, ...(json?.services ?? [])], peerOf, gate);
    serveNatsNodes(ports, address, served, gate);
    isServing = true;
  }

  /** Like the process, whose server first finishes the calls in progress, such as the one that demotes it. */
  async function standDown(): Promise<void> {
    await new Promise<void>((resolve) => ports.clock.setTimeout(resolve, closingMs));
    await manager.leadership.release();
    manager.stop();
    onDemoted();
  }

  serve().catch(onGivenUp);
  return {
    store: manager.replica,
    keyring: manager.keyring,
    isLeading: () => manager.leadership.isLeading(),
    unhealthy: () => manager.unhealthy(),
    lock: () => vault.lock,
    unlockKey: () => {
      if (cluster() === undefined) return new Uint8Array();
      const answer = manager.services.ca.GetUnlockKey(GetUnlockKeyRequest.create({}), {
        peer: { identity: null, local: true, address: "" },
        signal: new AbortController().signal,
        traceparent: "",
      });
      return (answer as GetUnlockKeyResponse).unlockKey;
    },
    isServing: () => isServing,
    certificate: () => held,
    joinToken: () => cluster()?.rootCa?.joinTokens?.worker ?? null,
    organization: () => cluster()?.id ?? "",
    jsonConnections: () => json?.open() ?? 0,
    // At least the ingress network's subnet is held.
    allocates: () => telemetry.reading("muster_allocator_held", { kind: "subnets" }) > 0,
    held: (kind) => telemetry.reading("muster_allocator_held", { kind }),
  };
}

/** Services to agents that an older version lacks. */
function servicesOfAgents({ networks, policy, taskCalls }: Manager["services"]) {
  return [
    { service: TaskCallsService, handlers: taskCalls },
    { service: PolicyService, handlers: policy },
    { service: NetworksService, handlers: networks },
  ];
}

function nodeId(ports: SimPorts): string {
  const known = ports.disk.read("node-id");
  if (known !== null) return new TextDecoder().decode(known);
  const id = newId(ports.random.fork("node-id"));
  write(ports, "node-id", id);
  return id;
}

function identityIn({ fields }: Vault): ManagerIdentity | null {
  const { nodeKey: keyPem, nodeCertificate: certificatePem } = fields;
  return keyPem === "" ? null : { keyPem, certificatePem };
}

function keyFile(ports: SimPorts): KeyFileDisk {
  return {
    read: () => ports.disk.read("keys"),
    write: (data) => {
      // A killed process writes nothing more.
      if (!ports.clock.alive) throw new Error("the process is dead");
      ports.disk.write("keys", data);
      ports.disk.sync("keys");
    },
  };
}

/** Time for the calls in progress when a manager exits, in milliseconds: answers wait for the mark, then for the network. */
const closingMs = 50;

/** Maximum duration of a change of the mark, in milliseconds. */
const markMsMax = 8;

function markDisk({ clock, disk, random }: SimPorts): LogMarkDisk {
  const slow = random.fork("log-mark");
  return {
    read: () => disk.read("log-mark"),
    write: (data) =>
      new Promise((resolve) => {
        disk.write("log-mark", data);
        clock.setTimeout(() => {
          disk.sync("log-mark");
          resolve();
        }, slow.next() * markMsMax);
      }),
  };
}

type ControlHandlers = ServiceHandlers<typeof ControlService>;

/** Reports the versions in answers to clients. */
function acknowledging(handlers: ControlHandlers, onAcknowledged: (version: number) => void): ControlHandlers {
  const wrapped = Object.entries(handlers).map(([name, handler]) => [
    name,
    async (...given: readonly unknown[]) => {
      const answer: unknown = await (handler as (...all: readonly unknown[]) => unknown)(...given);
      const version = versionIn(answer);
      if (version !== null && /^(?:Create|Update)/.test(name)) onAcknowledged(version);
      return answer;
    },
  ]);
  return Object.fromEntries(wrapped) as ControlHandlers;
}

function write(ports: SimPorts, name: string, text: string): void {
  ports.disk.write(name, new TextEncoder().encode(text));
  ports.disk.sync(name);
}
