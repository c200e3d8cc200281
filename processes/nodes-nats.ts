/**
 * A manager's NATS for nodes (`--listen-nodes-nats`): a nats-server without JetStream, beside the one of the log, in which nodes may
 * use their own subjects alone. The manager answers its callout, and serves the calls that nodes make over it.
 *
 * NN1: a node's links end when its last connection ends, and its connections when its standing does.
 * NN2: a node that floods, or opens too many connections, loses its own.
 */
import { X509Certificate } from "node:crypto";
import { closeSync, existsSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clusterOf } from "../actors/manager/bootstrap.ts";
import type { Manager } from "../actors/manager/manager.ts";
import type { Refusals } from "../edges/grpc/admission/refusals.ts";
import { requestBytesMax } from "../edges/grpc/message-limits.ts";
import type { NodeCalls } from "../edges/grpc/node-calls.ts";
import { createServerIdentity } from "../lib/pki/index.ts";
import { isSignedBy, knowsToken, nodesNatsName, readClaim } from "../lib/pki/presented.ts";
import { UserError } from "../lib/user-error.ts";
import { serveNodeLinks } from "../runtime/calls/node-links.ts";
import { NatsBus } from "../runtime/nats/bus.ts";
import { openNodesLink } from "../runtime/nats/connection.ts";
import {
  createAccount,
  createUser,
  NodesAccess,
  type Admitted,
  type ConnectAttempt,
  type KeyPair,
} from "../runtime/nats/nodes-access.ts";
import { startNodesServer } from "../runtime/nats/server.ts";
import type { Peer } from "../runtime/ports/rpc.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import type { HostPort } from "./addresses.ts";

/** SwarmKit's default validity of node certificates. */
const validityMs = 90 * 24 * 3_600_000;
/** Compared with the wall clock, which may be set. */
const checkMs = 60_000;
/** A node has one connection for its session, and one while it renews its certificate. */
const connectionsPerNodeMax = 8;
/** Connections of nodes that join; beyond, the oldest is closed. */
const joinersMax = 1_000;
/** For the last frames to a node whose connection is closed, in milliseconds. */
const closeGraceMs = 100;
/** A node that floods may not connect for that long, in milliseconds. */
const floodPauseMs = 30_000;

interface NodesNatsOptions {
  readonly dataDir: string;
  readonly listen: HostPort;
  readonly calls: NodeCalls;
  readonly refusals: Refusals;
  readonly telemetry: Telemetry;
}

interface Connected {
  /** The node's id, or the joiner's. */
  readonly id: string;
  readonly peer: Peer;
  /** Ends the watch of its standing. */
  readonly closed: () => void;
}

/** Serves until `stop`. Throws UserError, NatsServerProblem and NatsProblem. */
export async function serveNodesNats(
  { environment: env }: Manager,
  { calls, dataDir, listen, refusals, telemetry }: NodesNatsOptions,
): Promise<{ stop(): Promise<void> }> {
  const { clock, managerId, random } = env;
  const { log } = telemetry;
  const undo: (() => Promise<void> | void)[] = [];
  const stop = async (): Promise<void> => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const file = openTlsFile();
    undo.push(() => closeSync(file));
    const identity = await startIdentity(env, file);
    undo.push(() => identity.stop());
    const [issuer, systemUser, nodesUser] = [createAccount(), createUser(), createUser()];
    const server = await startNodesServer({
      dataDir: join(dataDir, "nodes"),
      host: listen.host,
      port: listen.port,
      // Its third descriptor, after the standard ones.
      inherited: [file],
      logFile: join(dataDir, "nodes-nats.log"),
      telemetry,
      accounts: {
        managerId,
        issuer: issuer.getPublicKey(),
        systemUser: systemUser.getPublicKey(),
        nodesUser: nodesUser.getPublicKey(),
        tlsFile: "/proc/self/fd/3",
      },
    });
    undo.push(() => server.stop());
    identity.onRenewed(() => server.reload());
    const connect = async (user: KeyPair, name: string) => {
      const link = await openNodesLink({
        server: server.url,
        seed: user.getSeed(),
        tls: {
          get ca() {
            return identity.rootPem();
          },
          serverName: nodesNatsName,
        },
        name: `muster-manager-${managerId}-${name}`,
        telemetry,
        random,
      });
      undo.push(() => link.drain());
      return link;
    };
    const system = await connect(systemUser, "access");
    const nodes = await connect(nodesUser, "nodes");

    /** By the server's number, in the order of their openings. */
    const connected = new Map<number, Connected>();
    /** Senders of a flood (a node, or the address of one that joined), and until when they may not connect, in the time of `Clock.monotonic`. */
    const paused = new Map<string, number>();
    const end = (connection: number): void => {
      connected.get(connection)?.closed();
      connected.delete(connection);
      clock.setTimeout(() => access.close(connection), closeGraceMs);
    };
    const connectionsOf = (id: string): readonly number[] =>
      [...connected].filter(([, each]) => each.id === id).map(([connection]) => connection);
    const admit = (attempt: ConnectAttempt): Admitted => {
      const identified = identify(attempt);
      if (typeof identified === "string") {
        refusals.count("nats", "credentials", attempt.address);
        log.debug({ peer: attempt.address, reason: identified }, "refused a connection to the NATS for nodes");
        return { kind: "refused", reason: identified };
      }
      const { id, notAfterMs, peer } = identified;
      const pausedUntil = paused.get(culprit(id, peer));
      if (pausedUntil !== undefined && pausedUntil > clock.monotonic())
        return { kind: "refused", reason: "this node has sent too many useless messages: connect later" };
      paused.delete(culprit(id, peer));
      const others = connectionsOf(id);
      if (others.length >= connectionsPerNodeMax) {
        refusals.count("nats", "known-limit", attempt.address);
        end(others[0] as number);
      }
      const joiners = peer.identity === null ? [...connected].filter(([, each]) => each.peer.identity === null) : [];
      if (joiners.length >= joinersMax) {
        refusals.count("nats", "anonymous-limit", attempt.address);
        end((joiners[0] as (typeof joiners)[number])[0]);
      }
      const { closed } = calls.gate.opened(peer, () => end(attempt.connection));
      connected.set(attempt.connection, { id, peer, closed });
      return { kind: "admitted", id, untilMs: notAfterMs };
    };
    const identify = ({ address, nonce, signature, token }: ConnectAttempt) => {
      const claim = readClaim(token);
      if (claim === null || nonce === "") return "neither a node's certificate nor a join token was shown";
      if (claim.kind === "joiner") {
        const tokens = clusterOf(env)?.rootCa?.joinTokens;
        if (!knowsToken(claim.joiner, signature, [tokens?.worker ?? "", tokens?.manager ?? ""], { nonce }))
          return "invalid join token";
        const joiner = calls.identify(null, address);
        return typeof joiner === "string" ? joiner : { ...joiner, id: claim.joiner };
      }
      const challenges = identity.fingerprints().map((fingerprint) => ({ server: fingerprint, nonce }));
      if (!isSignedBy(claim.chainPem, signature, challenges)) return "the certificate's key did not sign the challenge";
      const node = calls.identify(claim.chainPem, address);
      if (typeof node === "string") return node;
      return { ...node, id: node.peer.identity?.nodeId ?? "" };
    };
    const access = new NodesAccess({
      log,
      link: system,
      issuer,
      ownUser: nodesUser.getPublicKey(),
      admit,
      onGone: (connection) => {
        const gone = connected.get(connection);
        gone?.closed();
        connected.delete(connection);
        // NN1
        if (gone !== undefined && connectionsOf(gone.id).length === 0)
          links.end(gone.id, "its connection to NATS has ended");
      },
    });
    undo.push(() => access.stop());
    const links = serveNodeLinks({
      clock,
      log,
      random: random.fork("node-links"),
      bus: new NatsBus(nodes),
      managerId,
      services: calls.services,
      gate: calls.gate,
      peerOf: (nodeId) => [...connected.values()].findLast(({ id }) => id === nodeId)?.peer ?? null,
      payloadBytesMax: nodes.maxPayload,
      requestBytesMax,
      onFlood: (id) => {
        log.warn({ node: id }, "closed the connections of a node that sends useless messages");
        refusals.count("nats", "useless-messages", connected.get(connectionsOf(id)[0] ?? 0)?.peer.address ?? "");
        links.end(id, "the node sends useless messages");
        for (const connection of connectionsOf(id)) {
          const { peer } = connected.get(connection) as Connected;
          paused.set(culprit(id, peer), clock.monotonic() + floodPauseMs);
          end(connection);
        }
      },
    });
    undo.push(() => links.close());
    log.info({ url: server.url }, "serving nodes over NATS");
    return { stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function culprit(id: string, { address, identity }: Peer): string {
  return identity === null ? `at ${address}` : id;
}

/**
 * A file in memory without a name, for the server's certificate and key. The key authenticates this manager to nodes: on a disk it
 * would undo autolock.
 */
function openTlsFile(): number {
  const memory = "/dev/shm";
  const folder = mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), "muster-"));
  const path = join(folder, "tls.pem");
  const file = openSync(path, "wx+", 0o600);
  rmSync(folder, { recursive: true });
  return file;
}

/** Keeps a certificate of the root that nodes trust in the file. */
async function startIdentity(env: Manager["environment"], file: number) {
  let rootPem = "";
  let notAfterMs = 0;
  /** Of the current certificate and the one before, which the server may still show. */
  let fingerprints: readonly string[] = [];
  let isStopped = false;
  const listeners: (() => void)[] = [];
  const renew = async (): Promise<void> => {
    const rootCa = clusterOf(env)?.rootCa ?? null;
    const trustedPem = Buffer.from(rootCa?.caCert ?? []).toString();
    const nowMs = env.clock.now();
    if (trustedPem === rootPem && nowMs < notAfterMs - validityMs / 2) return;
    const rootKeyPem = Buffer.from(rootCa?.caKey ?? []).toString();
    if (rootKeyPem === "")
      throw new UserError(
        "cannot serve nodes over NATS: only an external CA has the key of the cluster's root. Start this manager without --listen-nodes-nats",
      );
    const issued = await createServerIdentity({
      rootCertificatePem: trustedPem,
      rootKeyPem,
      names: [nodesNatsName],
      addresses: [],
      nowMs,
      validityMs,
    });
    ftruncateSync(file);
    writeSync(file, issued.certificatePem + issued.keyPem, 0);
    ({ notAfterMs } = issued);
    rootPem = trustedPem;
    fingerprints = [new X509Certificate(issued.certificatePem).fingerprint256, ...fingerprints].slice(0, 2);
    for (const listener of listeners) listener();
  };
  await renew();
  const check = async (): Promise<void> => {
    await renew().catch((error: unknown) =>
      env.telemetry.log.error({ error: String(error) }, "cannot renew the certificate of the NATS for nodes"),
    );
    if (!isStopped) timer = setTimeout(() => void check(), checkMs);
  };
  let timer = setTimeout(() => void check(), checkMs);
  return {
    rootPem: () => rootPem,
    fingerprints: () => fingerprints,
    onRenewed: (listener: () => void) => listeners.push(listener),
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
