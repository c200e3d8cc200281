/**
 * One manager: all of its actors, assembled over its ports. The real process (`processes/manager.ts`) and the simulator
 * both start a manager here, so that the simulation runs the real code.
 *
 * On every manager: the replica, leadership, membership, the dispatcher with its sessions, and the services. On the leader
 * alone, from the barrier of its epoch until it steps down: its duties.
 */
import {
  Origin,
  Trouble_Kind,
  type BackupService,
  type CAService,
  type ControlService,
  type DataKeysService,
  type DispatcherService,
  type HealthService,
  type InspectionService,
  type NodeCAService,
  type OperatorService,
  type NetworksService,
  type PolicyService,
  type TaskAccessService,
  type TaskCallsService,
  type ResourceAllocatorService,
  type WatchService,
} from "../../proto/gen/messages.ts";
import { knownLevel } from "../../proto/format-level.ts";
import type { LogBrokerLines, LogsLines } from "../../proto/log-lines.ts";
import { explainCertificate, type CertificateView } from "../../machines/explain/certificate.ts";
import type { NetworkDefaults } from "../../machines/allocation/network-defaults.ts";
import type { Blobs, BusServers, LeaseBucket, Log } from "../../runtime/ports/index.ts";
import type { ServiceHandlers } from "../../runtime/ports/rpc.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { BusObserver } from "../../runtime/store/bus-observer.ts";
import { Keyring } from "../../runtime/store/keyring.ts";
import { readersLeases } from "../../runtime/store/readers-leases.ts";
import { MarkKeeper, type LogMarkDisk } from "../../runtime/store/log-mark.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { fingerprint, type Sealing } from "../../runtime/store/seal.ts";
import { SealedBlobs } from "../../runtime/store/sealed-blobs.ts";
import { SealedBus } from "../../runtime/store/sealed-bus.ts";
import { SealedLog } from "../../runtime/store/sealed-log.ts";
import type { SnapshotOptions } from "../../runtime/store/snapshots.ts";
import type { Vault } from "../../runtime/store/vault.ts";
import { createBackups } from "../backup/backup.ts";
import { bootstrapCluster, whenCluster } from "./bootstrap.ts";
import { createCa } from "../certificates/ca.ts";
import type { CertificateAuthority } from "../certificates/ca-port.ts";
import { startAgentLogins } from "../json/agent-logins.ts";
import { startCertificateSigner } from "../certificates/certificate-signer.ts";
import { createControl, type ControlSources } from "../control.ts";
import {
  createDataKeys,
  startKeyFetch,
  startKeyRotation,
  type DataKeyParts,
  type FetchKeys,
} from "../keys/data-keys.ts";
import { startNatsAuthority } from "../keys/nats-authority.ts";
import { levelWarnings, startFormatLevel } from "./format-level.ts";
import { startDemotions } from "./demotions.ts";
import { createDispatcher, type SessionInfo } from "../dispatcher/dispatcher.ts";
import { noCsiSockets, type CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import type { Environment, Running } from "../environment.ts";
import { createHealth } from "./health.ts";
import { createHistory } from "../history/history.ts";
import { keyWarnings } from "../keys/key-warnings.ts";
import { startKeyManager } from "../keys/key-manager.ts";
import { answerQuestions, askLeader, type LeaderKnowledge } from "../leader-questions.ts";
import { startLeadership, type Leadership } from "../ledger/leadership.ts";
import { createLogBroker } from "../logs/broker.ts";
import { createInspection } from "../inspection/inspection.ts";
import { keptRecording } from "../inspection/kept-ring.ts";
import type { RecordingRing } from "../../runtime/recording/ring.ts";
import type { RecordingSigner } from "../../runtime/recording/seal.ts";
import { createProcessFeed } from "../inspection/process-feed.ts";
import { createNodeCalls } from "../node-calls.ts";
import { createTaskCalls } from "../task-calls.ts";
import { slowLink } from "../../machines/manager/leader-troubles.ts";
import { managerProcess } from "../../machines/inspection/selection.ts";
import { isDemoted } from "../../machines/manager/role.ts";
import { startMembership } from "./membership.ts";
import { startNodeWatch } from "../dispatcher/node-watch.ts";
import { createOperator } from "../operator.ts";
import { createNetworks } from "../networks.ts";
import { createPolicy } from "../policy.ts";
import { startOrchestration, type Orchestration } from "../orchestration/orchestration.ts";
import { followServiceTraces, traceOrchestration } from "../orchestration/tracing.ts";
import { writingAs } from "../origin.ts";
import { startSightings } from "./sightings.ts";
import type { AskClock } from "./compare-clocks.ts";
import { startClockWatch, type ClockWatch } from "./clock-watch.ts";
import { startSiteWatch } from "./site-watch.ts";
import { startIsolation, type AskPeer } from "./isolation.ts";
import { startProgress } from "./progress.ts";
import { watchStandings, type Standings } from "./standings.ts";
import { startRootRotation } from "../certificates/root-rotation.ts";
import { startUnclaimedRemoval } from "../certificates/unclaimed-nodes.ts";
import type { ExternalCa } from "../../runtime/ports/external-ca.ts";
import { createResourceAllocator } from "../resource-allocator.ts";
import { startVolumes, type Volumes } from "../volumes/volumes.ts";
import { createWatch, type WatchOptions } from "../watch/watch.ts";

interface ManagerParts extends Omit<Environment, "store" | "proposer" | "times"> {
  readonly log: Log;
  readonly leases: LeaseBucket;
  readonly blobs: Blobs;
  readonly authority: CertificateAuthority;
  /** External CAs that sign certificates; none when absent. */
  readonly externalCa?: ExternalCa;
  /** This manager's own keys, which seal everything in the log and the blobs. */
  readonly vault: Vault;
  readonly fetchKeys: FetchKeys;
  readonly askPeer: AskPeer;
  readonly askClock: AskClock;
  /** The managers' own NATS; absent with an external one. */
  readonly ownNats?: Pick<Required<DataKeyParts>, "natsServers" | "natsCluster" | "prepareNats" | "natsAuthorities">;
  /** Where the mark of the last seen record is kept; nowhere when absent. */
  readonly markDisk?: LogMarkDisk;
  /** Accepts the log even if it lacks records that the mark covers. */
  readonly acceptsLogLoss?: boolean;
  /** Addresses named by the operator, to ask for keys that no registered manager has. */
  readonly seeds?: readonly string[];
  /** This process's part in recordings; absent: it keeps none, and makes none of others. */
  readonly recording?: {
    /** Keeps the last minutes of its actors; null: nothing does. */
    readonly ring: RecordingRing | null;
    /** Certificate and key that sign recordings; null: there are none yet. */
    readonly signer: () => RecordingSigner | null;
  };
  /** Hostname of this manager's machine, for viewers; unknown when absent. */
  readonly hostname?: string;
  /** host:port that workers reach this manager at. */
  readonly advertise: string;
  /** Addresses of the host name in `advertise`; none when it is an address itself. */
  readonly addresses?: readonly string[];
  /** Whether this manager is joining the cluster; false once it has joined, also after a restart. */
  readonly isJoining?: boolean;
  /** Networks of a cluster that this manager creates; Swarm's defaults when absent. */
  readonly networks?: NetworkDefaults;
  /** Guarantees that the NATS server lacks, in sentences for the operator. */
  readonly warnings: readonly string[];
  /** Counts the servers of the bus; absent when there is nothing to count. */
  servers?(): Promise<BusServers>;
  /** Copies of the log, and how many of them are current; absent when there is nothing to count. */
  copies?(): Promise<{ readonly wanted: number; readonly current: number } | null>;
  /** Where every part of this process raises troubles. */
  readonly troubles: Troubles;
  /** See DispatcherOptions. */
  readonly nodesWaitMs: () => number;
  /** Controllers of storage plugins on this machine; none when absent. */
  readonly csi?: CsiSockets;
  /** When snapshots are written and how many are kept; the store's defaults when absent. */
  readonly snapshots?: Partial<SnapshotOptions>;
  /** How much Watch keeps in memory; its own limits when absent. */
  readonly watch?: WatchOptions;
  /** Encodes even the proposals that stay in this process: for simulations. */
  readonly encodesAlways?: boolean;
  /** Highest level of the log's format that it knows, for simulations of other versions. */
  readonly level?: number;
  /** Instead of the cipher: for simulations. */
  readonly sealing?: Sealing | undefined;
  /** Observes all messages on the bus: for simulations. */
  readonly busObserver?: BusObserver;
  /** Called when the replica meets a broken log, or a duty fails for good: the process must exit. */
  readonly onBroken: (error: unknown) => void;
  /** Called when the other managers refuse to give it the log's keys: it was demoted or removed, and the process must exit. */
  readonly onDenied?: (reason: string) => void;
}

interface ManagerServices {
  readonly backup: ServiceHandlers<typeof BackupService>;
  readonly ca: ServiceHandlers<typeof CAService>;
  readonly nodeCa: ServiceHandlers<typeof NodeCAService>;
  readonly dataKeys: ServiceHandlers<typeof DataKeysService>;
  readonly dispatcher: ServiceHandlers<typeof DispatcherService>;
  readonly logBroker: ServiceHandlers<typeof LogBrokerLines>;
  readonly logs: ServiceHandlers<typeof LogsLines>;
  readonly taskAccess: ServiceHandlers<typeof TaskAccessService>;
  readonly inspection: ServiceHandlers<typeof InspectionService>;
  readonly taskCalls: ServiceHandlers<typeof TaskCallsService>;
  readonly health: ServiceHandlers<typeof HealthService>;
  readonly control: ServiceHandlers<typeof ControlService>;
  readonly watch: ServiceHandlers<typeof WatchService>;
  readonly operator: ServiceHandlers<typeof OperatorService>;
  readonly policy: ServiceHandlers<typeof PolicyService>;
  readonly networks: ServiceHandlers<typeof NetworksService>;
  readonly resourceAllocator: ServiceHandlers<typeof ResourceAllocatorService>;
}

export interface Manager extends Running {
  readonly environment: Environment;
  /** The parts of a backup that this process writes itself. */
  readonly backupParts: ReturnType<typeof createBackups>["parts"];
  readonly replica: Replica;
  readonly keyring: Keyring;
  readonly leadership: Leadership;
  readonly services: ManagerServices;
  readonly clockWatch: Pick<ClockWatch, "onJump">;
  /** Nodes and users that its edges serve. */
  readonly standings: Standings;
  /** The sessions of nodes that it holds. */
  sessions(): Iterable<SessionInfo>;
  /** Resolves when the replica has caught up and the cluster object exists: from then on it can serve. */
  ready(): Promise<void>;
  /** Why this manager makes no progress; null while it does. */
  unhealthy(): string | null;
}

export function startManager(parts: ManagerParts): Manager {
  const { authority, advertise, onBroken, troubles, vault } = parts;
  const keyring = new Keyring(vault, parts.random.fork("keyring"), parts.sealing);
  const leases = readersLeases(parts.leases, keyring);
  // All reads and writes of the log and of snapshots go through these; nothing else sees sealed bytes.
  const sealing = parts.random.fork("seal");
  const log = new SealedLog(parts.log, keyring, sealing, parts.clock);
  const blobs = new SealedBlobs(parts.blobs, keyring, { random: sealing, clock: parts.clock });
  const { clock, telemetry } = parts;
  const bus = new SealedBus({
    bus: parts.bus,
    keyring,
    random: sealing,
    clock,
    telemetry,
    observer: parts.busObserver,
  });
  const { level = knownLevel } = parts;
  const replica = new Replica({ level });
  // Subscribes before all others: a node or user removed by a commit sees nothing of it, or of later ones.
  const standings = watchStandings(replica);
  // Subscribes before the orchestration, which uses its measurements of each commit.
  const sightings = startSightings(replica, clock, () => leadership.follower.isCaughtUp());
  const mark = parts.markDisk === undefined ? undefined : new MarkKeeper({ ...parts, replica, disk: parts.markDisk });
  let knowledge: LeaderKnowledge | null = null;
  const leadership: Leadership = startLeadership(
    { ...parts, bus, store: replica },
    {
      leases,
      log,
      replica,
      blobs,
      onBroken,
      cause: () => troubles.cause(),
      fullCause: () =>
        troubles.all().find(({ blocking, kind }) => blocking && kind === Trouble_Kind.DISK_FULL)?.sentence ?? null,
      onLeaseAnswered: (roundTripMs) => {
        const found = slowLink(roundTripMs, leases.ttlMs);
        if (found === null) troubles.clear(Trouble_Kind.SLOW_LINK);
        else troubles.raise({ kind: Trouble_Kind.SLOW_LINK, ...found });
      },
      onLeaseKept: () => troubles.clear(Trouble_Kind.SLOW_LINK),
      startDuties: (epoch) => startDuties(epoch),
      // It may have been demoted while it was not running.
      mayLead: () => {
        const node = replica.get("node", parts.managerId);
        return node === undefined || !isDemoted(node);
      },
      encodesAlways: parts.encodesAlways ?? false,
      mark,
      acceptsLogLoss: parts.acceptsLogLoss,
      troubles,
      ...(parts.snapshots === undefined ? {} : { snapshots: parts.snapshots }),
    },
  );
  const isCopyMissing = (): boolean => troubles.all().some(({ kind }) => kind === Trouble_Kind.COPIES_MISSING);
  const environment: Environment = {
    ...parts,
    bus,
    store: replica,
    proposer: leadership.proposer,
    clockWatch: { look: () => clockWatch.look() },
    times: sightings.times,
  };
  const denials = parts.onDenied === undefined ? {} : { onDenied: parts.onDenied };
  const { fetchKeys, seeds = [] } = parts;
  const wallMs = (): number => parts.clock.now();
  const keys = { vault, keyring, fetchKeys, addr: advertise, seeds, troubles, wallMs, ...parts.ownNats, ...denials };

  const serviceTraces = followServiceTraces(replica);

  function startDuties(epoch: number): Running {
    const duties: Running[] = [];
    let stopped = false;
    // Duties decide on the state that their term has seen, so writes of an ended term must be rejected.
    const { proposer } = leadership;
    const termed: Environment = {
      ...environment,
      proposer: { propose: (proposal) => proposer.propose({ ...proposal, epoch }) },
    };
    const startRest = (): void => {
      if (stopped) return;
      const orchestration = startOrchestration(traceOrchestration(termed, serviceTraces));
      const volumes = startVolumes(
        writingAs(termed, Origin.ORIGIN_VOLUMES),
        parts.csi ?? noCsiSockets,
        leadership.isTermCurrent,
      );
      knowledge = knowledgeOf(orchestration, volumes);
      duties.push(
        orchestration,
        volumes,
        answerQuestions(termed, knowledge),
        startNodeWatch(writingAs(termed, Origin.ORIGIN_NODE_WATCH), { verdict: (wait) => dispatcher.verdict(wait) }),
        startCertificateSigner(writingAs(termed, Origin.ORIGIN_CERTIFICATES), authority, parts.externalCa),
        startDemotions(writingAs(termed, Origin.ORIGIN_NODE_WATCH), () => leadership.stepDown()),
        startAgentLogins(writingAs(termed, Origin.ORIGIN_NODE_WATCH)),
        startRootRotation(writingAs(termed, Origin.ORIGIN_CERTIFICATES), authority),
        startFormatLevel(founding, level),
        startUnclaimedRemoval(writingAs(termed, Origin.ORIGIN_CERTIFICATES)),
        startKeyRotation(termed, keys),
        ...(parts.ownNats === undefined
          ? []
          : [startNatsAuthority(termed, parts.ownNats.natsAuthorities, isCopyMissing)]),
        startKeyManager(writingAs(termed, Origin.ORIGIN_KEYS)),
      );
    };
    // A bootstrap fails when the ledger takes too long: the next leader, or this one in its next epoch, tries again.
    const founding = writingAs(termed, Origin.ORIGIN_BOOTSTRAP);
    bootstrapCluster(founding, authority, { advertise, networks: parts.networks, level }).then(
      startRest,
      (error: unknown) => {
        parts.telemetry.log.warn({ err: error }, "cannot write the cluster object; stepping down");
        leadership.stepDown();
      },
    );
    return {
      stop: () => {
        stopped = true;
        knowledge = null;
        for (const duty of duties.splice(0).reverse()) duty.stop();
      },
    };
  }

  function certificateView(nodeId: string): CertificateView {
    const next = [...replica.all("cluster")][0]?.rootCa?.rootRotation?.caCert;
    const nextIssuer = next === undefined ? null : authority.issuerName(new TextDecoder().decode(next));
    return { manager: replica.get("manager", nodeId), nextIssuer };
  }

  function knowledgeOf(orchestration: Orchestration, volumes: Volumes): LeaderKnowledge {
    return {
      explainTask: (id) => {
        const task = replica.get("task", id);
        return task === undefined ? [] : [...orchestration.explainTask(task), ...volumes.explainTask(task)];
      },
      explainVolume: (id) => volumes.explain(id),
      explainService: (id) => orchestration.explainService(id),
      planService: (request) => orchestration.planService(request),
      planRebalance: (request) => orchestration.planRebalance(request),
    };
  }

  const progress = startProgress(environment, {
    log,
    leases: parts.leases,
    troubles,
    leaderEpoch: () => leadership.leader()?.epoch ?? null,
    ...(parts.servers === undefined ? {} : { servers: parts.servers }),
  });
  const clockWatch = startClockWatch(parts.clock, troubles);
  clockWatch.onJump(() => {
    if (leadership.isLeading()) leadership.stepDown();
  });
  const unhealthy = (): string | null => troubles.cause() ?? progress.stuckBecause();
  const dispatcher = createDispatcher(environment, {
    settled: () => parts.bus.isUp() && unhealthy() === null && progress.isCurrent(),
    nodesWaitMs: parts.nodesWaitMs,
    addr: advertise,
  });
  const isolation = startIsolation(environment, {
    progress,
    askPeer: parts.askPeer,
    addr: advertise,
    sendNodesAway: () => dispatcher.sendNodesAway(),
    serveNodes: () => dispatcher.serveNodes(),
  });
  let handedLock = "";
  const membership = startMembership(environment, {
    addr: advertise,
    addresses: parts.addresses ?? [],
    checksum: () => replica.checksum,
    level,
    keyring,
    handedLock: () => handedLock,
    lossAccepted: () => mark?.lossAccepted ?? null,
    isCurrent: () => leadership.follower.isCaughtUp(),
    isJoining: parts.isJoining === true,
    trouble: () => dispatcher.trouble(),
  });
  void leadership.follower.caughtUp().then(() => membership.look());
  // A snapshot that closed a gap may change this manager's record, which is checked only then.
  leadership.follower.onCaughtUp(() => membership.look());
  const keyFetch = startKeyFetch(environment, keys);
  const logBroker = createLogBroker(environment);
  const policy = createPolicy(environment, () => leadership.follower.isCaughtUp());
  const networks = createNetworks(environment, () => leadership.follower.isCaughtUp());
  const nodeCalls = createNodeCalls();
  const taskCalls = createTaskCalls(environment, nodeCalls);
  const { host, managerId } = parts;
  const feed = createProcessFeed({
    host,
    clock,
    telemetry,
    process: managerProcess(managerId),
    hostname: parts.hostname ?? "",
  });
  const { ring, signer } = parts.recording ?? { ring: null, signer: () => null };
  const kept = ring === null ? null : keptRecording(ring, clock);
  const inspection = createInspection(environment, feed, nodeCalls, kept, signer, (request, sink) =>
    history.recordRange(request, sink),
  );
  if (ring !== null) feed.record(ring);
  const watch = createWatch(environment, { log, blobs }, parts.watch);
  const ca = createCa(environment, authority, {
    onUnlockKeyGiven: (unlockKey) => {
      handedLock = fingerprint(unlockKey);
      membership.look();
    },
  });
  const controlSources: ControlSources = {
    leaderId: () => leadership.leader()?.managerId ?? "",
    authority,
    ...(parts.externalCa === undefined ? {} : { externalCa: parts.externalCa }),
  };
  const history = createHistory(environment, {
    log,
    blobs,
    controlAt: (past, leaderId) => createControl(past, { ...controlSources, leaderId: () => leaderId }).handlers,
  });
  const backups = createBackups({ env: environment, replica, log, blobs, clock, telemetry, signer });
  const operator = createOperator(environment, {
    ask: (question) =>
      askLeader(environment, { own: () => knowledge, leader: () => leadership.leader()?.managerId ?? null }, question),
    sessionState: (nodeId) => dispatcher.stateOf(nodeId),
    explainNode: (node) => [...dispatcher.explain(node.id), ...explainCertificate(node, certificateView(node.id))],
    leader: () => {
      const leader = leadership.leader();
      return leader === null ? null : { id: leader.managerId, epoch: leader.epoch };
    },
    log,
    history,
    addr: advertise,
    warnings: () => [...parts.warnings, ...keyWarnings(environment, keys), ...levelWarnings(replica, level)],
    troubles: () => troubles.all(),
    health: () => ({ healthy: unhealthy() === null, progressAgeMs: progress.ageMs() }),
    sessions: () => [...dispatcher.sessions()].length,
    askClock: parts.askClock,
    ...(parts.copies === undefined ? {} : { copies: parts.copies }),
  });
  const running: readonly Running[] = [
    serviceTraces,
    standings,
    sightings,
    ...(mark === undefined ? [] : [mark]),
    leadership,
    progress,
    isolation,
    clockWatch,
    startSiteWatch(replica, troubles),
    keyFetch,
    membership,
    dispatcher,
    ca,
    logBroker,
    policy,
    networks,
    nodeCalls,
    taskCalls,
    feed,
    inspection,
    watch,
    history,
    backups,
  ];
  return {
    environment,
    backupParts: (request) => backups.parts(request),
    replica,
    keyring,
    leadership,
    clockWatch,
    standings,
    sessions: () => dispatcher.sessions(),
    services: {
      backup: backups.handlers,
      ca: ca.ca,
      nodeCa: ca.nodeCa,
      dataKeys: createDataKeys(keys),
      dispatcher: dispatcher.handlers,
      logBroker: logBroker.handlers,
      logs: logBroker.logs,
      taskAccess: taskCalls.access,
      taskCalls: nodeCalls.handlers,
      inspection: inspection.handlers,
      health: createHealth(() => unhealthy() === null).handlers,
      control: createControl(environment, controlSources).handlers,
      watch: watch.handlers,
      operator: operator.handlers,
      policy: policy.handlers,
      networks: networks.handlers,
      resourceAllocator: createResourceAllocator(environment).handlers,
    },
    ready: async () => {
      await whenCluster(environment);
      // Earlier records, such as this manager's demotion, may be outdated.
      await leadership.follower.caughtUp();
    },
    unhealthy,
    stop: () => {
      for (const part of [...running].reverse()) part.stop();
      bus.stop();
    },
  };
}
