/** The ports of one process on one NATS: with `server.ts`, the only entry to this folder for `cli/`. */
import { SystemRandom } from "../system/random.ts";
import type { Blobs, Bus, BusServers, LeaseBucket, Log, Random, Telemetry } from "../ports/index.ts";
import { abilities, isSupported } from "./abilities.ts";
import { NatsBlobs } from "./blobs.ts";
import { NatsBus } from "./bus.ts";
import { fullSentence, type DiskSpace } from "./disk-space.ts";
import { NatsProblem, textOf } from "./errors.ts";
import { type Laggard, Laggards } from "./laggards.ts";
import { NatsLeases } from "./leases.ts";
import { Link } from "./link.ts";
import { NatsLog } from "./log.ts";
import type { NatsTls } from "./nats-tls.ts";
import { logStream, setUpBlobs, setUpStreams, streamCopies } from "./streams.ts";

/** Bytes: NATS's own default. It is enough for the managers' messages and for a transaction with the largest config. */
const maxPayloadMin = 1024 * 1024;
/** A server that is starting beside us answers within this time. */
const firstConnectMsDefault = 10_000;
/** For the question how many copies of the log are current, in milliseconds. */
const copiesMs = 1_500;

export interface NatsOptions {
  /** `nats://[user:pass@]host:port`; several must be servers of one cluster. */
  readonly servers: readonly string[];
  readonly user?: string;
  readonly pass?: string;
  readonly token?: string;
  /** For servers that require TLS with their own CA or a client certificate; files are read again at each connection. */
  readonly tls?: NatsTls;
  /** Accept servers beyond loopback without TLS or authentication. Default false. */
  readonly insecure?: boolean;
  /** This process's name in the server's tools. */
  readonly name: string;
  readonly telemetry: Telemetry;
  /**
   * Copies of the log, leases and blobs; 3 needs three nats-servers in one cluster. Default 1. Existing streams are raised,
   * never lowered.
   */
  readonly replicas?: 1 | 3;
  /** TTL of the bucket of leases, at least 100; absent: unchanged, 3,000 for a new bucket. */
  readonly leaseTtlMs?: number;
  readonly random?: Random;
  /** How long to search for the first server. Default 10,000. */
  readonly firstConnectMs?: number;
  /** Aborts the search for the first server. */
  readonly signal?: AbortSignal;
  /** Reported by `startNatsServer`; null (the default) for an external server. */
  readonly flushesEveryWrite?: boolean | null;
  /** The disk of that server; null (the default) for an external server. */
  readonly disk?: { readonly space: DiskSpace } | null;
}

export interface NatsLink {
  readonly bus: Bus;
  readonly log: Log;
  readonly leases: LeaseBucket;
  readonly blobs: Blobs;
  /** Guarantees that this server lacks, in sentences for the operator. */
  readonly abilities: readonly string[];
  readonly serverVersion: string;
  /** Counts the configured servers and those that answer. Takes at most 1.5 s. */
  servers(): Promise<BusServers>;
  /** Copies of the log, and how many of them are current; null while NATS does not answer for it. Takes at most 1.5 s. */
  copies(): Promise<{ readonly wanted: number; readonly current: number } | null>;
  /** Replaces the configured servers, which are those of the same cluster, for the next connections. */
  useServers(servers: readonly string[]): void;
  /** How long requests to the log have been unanswered, and the reason of the last one; null while the log is served. */
  unserved(): { readonly ms: number; readonly reason: string } | null;
  /** Where JetStream is off; null while it is on, and without a connection. */
  jetStreamOff(): "server" | "account" | null;
  /** Servers that accept clients but have stopped following the log; empty for a single server. */
  laggards(): readonly Laggard[];
  /** Why the log rejects writes for lack of space; null while it accepts them. */
  fullReason(): string | null;
  /** Stops receiving, flushes published messages, closes. Takes a few seconds at most. */
  drain(): Promise<void>;
  close(): void;
}

/** A manager's connection to its own server for nodes. Throws NatsProblem. */
export function openNodesLink(
  options: Pick<NatsOptions, "name" | "telemetry"> & {
    readonly server: string;
    readonly seed: Uint8Array;
    readonly tls: NatsTls;
    readonly random: Random;
    /** The link's name in metrics. */
    readonly nodesLink: string;
  },
): Promise<Link> {
  const { random, server } = options;
  return Link.open({
    ...options,
    servers: [server],
    random: random.fork("nodes-nats"),
    firstConnectMs: firstConnectMsDefault,
  });
}

/**
 * Connects, sets up the streams and probes the server; the link then reconnects for as long as it is open. Throws NatsProblem,
 * whose message is a sentence for the operator: `unreachable`, `unauthorized`, `unusable` or `unavailable`.
 */
export async function connectNats(options: NatsOptions): Promise<NatsLink> {
  const { telemetry, replicas = 1, leaseTtlMs = null } = options;
  const random = (options.random ?? new SystemRandom()).fork("nats");
  const link = await Link.open({ ...options, random, firstConnectMs: options.firstConnectMs ?? firstConnectMsDefault });
  try {
    const { serverVersion, maxPayload } = link;
    if (!isSupported(serverVersion))
      throw new NatsProblem("unusable", `nats-server ${serverVersion} is too old for Muster: install 2.9 or newer`);
    if (maxPayload < maxPayloadMin)
      throw new NatsProblem(
        "unusable",
        `the nats-server limits messages to ${maxPayload} bytes, but Muster needs ${maxPayloadMin}: raise max_payload in its configuration`,
      );
    if (!link.hasJetStream)
      throw new NatsProblem(
        "unusable",
        "the nats-server runs without JetStream: start it with -js or a jetstream block in its configuration",
      );
    const {
      logMessageBytesMax,
      leaseTtlMs: ttlMs,
      leaseConfig,
      blobsUnanswered,
      ...streams
    } = await setUpStreams(link, {
      replicas,
      leaseTtlMs,
      maxPayload,
    });
    if (blobsUnanswered !== "") {
      telemetry.log.warn({ reason: blobsUnanswered }, "the bucket of snapshots does not answer: continuing without it");
      setUpBlobs(link, { replicas, leaseTtlMs, maxPayload }).catch((error: unknown) =>
        telemetry.log.error({ reason: textOf(error) }, "the bucket of snapshots cannot be used"),
      );
    }
    const laggards = new Laggards(link);
    return {
      bus: new NatsBus(link),
      log: new NatsLog(link, { telemetry, random, messageBytesMax: logMessageBytesMax, disk: options.disk ?? null }),
      leases: new NatsLeases(link, { ttlMs, config: leaseConfig, telemetry }),
      blobs: new NatsBlobs(link, { telemetry, random }),
      abilities: abilities({
        version: serverVersion,
        ...streams,
        flushesEveryWrite: options.flushesEveryWrite ?? null,
      }),
      serverVersion,
      servers: () => link.servers(),
      copies: () => (link.isUp() ? streamCopies(link, logStream, copiesMs) : Promise.resolve(null)),
      useServers: (servers) => link.useServers(servers),
      fullReason: () =>
        options.disk?.space.kind === "full" ? fullSentence(options.disk.space) : link.serving.fullReason,
      jetStreamOff: () => link.jetStreamOff,
      laggards: () => laggards.all(performance.now()),
      unserved: () => link.serving.silence(performance.now()),
      drain: () => link.drain(),
      close: () => link.close(),
    };
  } catch (error) {
    link.close();
    throw error;
  }
}
