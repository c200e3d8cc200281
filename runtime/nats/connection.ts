/** The ports of one process on one NATS: what `cli/` asks for, and the only way into this folder but `server.ts`. */
import type { TlsOptions } from "nats";
import { SystemRandom } from "../system/random.ts";
import type { Blobs, Bus, BusServers, LeaseBucket, Log, Random, Telemetry } from "../ports.ts";
import { abilities, isSupported } from "./abilities.ts";
import { NatsBlobs } from "./blobs.ts";
import { NatsBus } from "./bus.ts";
import { fullSentence, type DiskRoom } from "./disk-room.ts";
import { NatsProblem, textOf } from "./errors.ts";
import { type Laggard, Laggards } from "./laggards.ts";
import { NatsLeases } from "./leases.ts";
import { Link } from "./link.ts";
import { NatsLog } from "./log.ts";
import { setUpBlobs, setUpStreams } from "./streams.ts";

/** Bytes: NATS's own default. What managers send each other and a transaction of the log fit it, the largest config included. */
const maxPayloadMin = 1024 * 1024;
/** A server that is being started beside us has answered by then. */
const firstConnectMsDefault = 10_000;

export interface NatsOptions {
  /** `nats://[user:pass@]host:port`; any of them will do, and several are servers of one cluster. */
  readonly servers: readonly string[];
  readonly user?: string;
  readonly pass?: string;
  readonly token?: string;
  /** For servers that want TLS with a CA or a client certificate of their own; files are read anew at each connection. */
  readonly tls?: TlsOptions;
  /** Take servers beyond loopback that have no TLS or let everybody in. Default false. */
  readonly insecure?: boolean;
  /** Of this process, as the server's tools show it. */
  readonly name: string;
  readonly telemetry: Telemetry;
  /** Copies of the log, leases and blobs; 3 needs three nats-servers in one cluster. Default 1. Those of existing streams are raised, never lowered. */
  readonly replicas?: 1 | 3;
  /** What the bucket of leases is brought to; absent: it stays as it is, 3,000 where it is new. At least 100. */
  readonly leaseTtlMs?: number;
  readonly random?: Random;
  /** How long to look for the first server before giving up. Default 10,000. */
  readonly firstConnectMs?: number;
  /** Ends the search for a first server early. */
  readonly signal?: AbortSignal;
  /** What `startNatsServer` says of the server it runs; null (the default) for another's. */
  readonly flushesEveryWrite?: boolean | null;
  /** Of the same server, the disk that it writes to; null (the default) for another's. */
  readonly disk?: { readonly room: DiskRoom } | null;
}

export interface NatsLink {
  readonly bus: Bus;
  readonly log: Log;
  readonly leases: LeaseBucket;
  readonly blobs: Blobs;
  /** What this server cannot promise, in sentences for the operator. */
  readonly abilities: readonly string[];
  readonly serverVersion: string;
  /** Counts the servers that were named and those that answer. Takes 1.5 s at most. */
  servers(): Promise<BusServers>;
  /** For how long requests to the log have been left unanswered, and why the last was; null while it is served. */
  unserved(): { readonly ms: number; readonly reason: string } | null;
  /** Where JetStream is off; null while it is on, and without a connection. */
  jetStreamOff(): "server" | "account" | null;
  /** Servers that take clients and have stopped following the log; none where one server was named. */
  laggards(): readonly Laggard[];
  /** Why the log takes nothing for want of space; null while it takes what it is given. */
  fullReason(): string | null;
  /** Stops receiving, sees what was published off, closes. Takes seconds at most. */
  drain(): Promise<void>;
  close(): void;
}

/**
 * Connects, sets up the streams and probes the server; from then on the link is kept up for ever.
 * Throws NatsProblem, whose message is a sentence for the operator: `unreachable`, `unauthorized`, `unusable` or `unavailable`.
 */
export async function connectNats(options: NatsOptions): Promise<NatsLink> {
  const { telemetry, replicas = 1, leaseTtlMs = null } = options;
  const random = (options.random ?? new SystemRandom()).fork("nats");
  const link = await Link.open({ ...options, random, firstConnectMs: options.firstConnectMs ?? firstConnectMsDefault });
  try {
    const { serverVersion, maxPayload } = link;
    if (!isSupported(serverVersion))
      throw new NatsProblem("unusable", `nats-server ${serverVersion} is too old for Muster: install 2.9 or newer.`);
    if (maxPayload < maxPayloadMin)
      throw new NatsProblem(
        "unusable",
        `The nats-server lets messages of ${maxPayload} bytes pass at most, and Muster needs ${maxPayloadMin}: raise max_payload in its configuration.`,
      );
    if (!link.hasJetStream)
      throw new NatsProblem(
        "unusable",
        "The nats-server runs without JetStream: start it with -js or a jetstream block in its configuration.",
      );
    const {
      logMessageBytesMax,
      leaseTtlMs: ttlMs,
      leaseConfig,
      blobsUnheard,
      ...streams
    } = await setUpStreams(link, {
      replicas,
      leaseTtlMs,
      maxPayload,
    });
    if (blobsUnheard !== "") {
      telemetry.log.warn({ reason: blobsUnheard }, "the bucket of snapshots does not answer: going on without it");
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
      fullReason: () =>
        options.disk?.room.kind === "full" ? fullSentence(options.disk.room) : link.serving.fullReason,
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
