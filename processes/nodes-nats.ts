/**
 * A manager's NATS for nodes (`--listen-nodes-nats`): a nats-server without JetStream, beside the one of the log, in which nodes may
 * use their own subjects alone. The manager answers its callout, and serves the calls that nodes make over it.
 */
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { clusterOf } from "../actors/manager/bootstrap.ts";
import type { Manager } from "../actors/manager/manager.ts";
import type { Refusals } from "../edges/grpc/admission/refusals.ts";
import type { Carrier } from "../edges/grpc/carried.ts";
import { requestBytesMax } from "../edges/grpc/message-limits.ts";
import type { NodeCalls } from "../edges/grpc/node-calls.ts";
import { nodesNatsName } from "../lib/pki/presented.ts";
import { UserError } from "../lib/user-error.ts";
import { serveNodeLinks } from "../runtime/calls/node-links.ts";
import { serveSiteLinks } from "../runtime/calls/site-links.ts";
import { NatsBus } from "../runtime/nats/bus.ts";
import { openNodesLink } from "../runtime/nats/connection.ts";
import { createUser, NodesAccess, type KeyPair } from "../runtime/nats/nodes-access.ts";
import { NatsServerProblem, startNodesServer } from "../runtime/nats/server.ts";
import { createSigningAccount } from "../runtime/nats/signing-key.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { formatHostPort, type HostPort } from "./addresses.ts";
import type { KeptCertificate } from "./manager-server.ts";
import { NodesAdmission } from "./nodes-admission.ts";
import { openNodesNatsIdentity } from "./nodes-nats-identity.ts";

export interface LeafNodes {
  readonly listen: HostPort;
  /** Names and IP addresses by which leaf nodes reach the server. */
  readonly names: readonly string[];
}

interface NodesNatsOptions {
  readonly dataDir: string;
  readonly listen: HostPort;
  /** Where nodes connect over WebSockets; null: nowhere. */
  readonly webSockets: HostPort | null;
  /** Where leaf nodes connect; null: nowhere. */
  readonly leafNodes: LeafNodes | null;
  /** Serves a connection that a node of a site has opened. */
  readonly accept: (stream: Duplex, carrier: Carrier) => void;
  readonly calls: NodeCalls;
  readonly certificate: KeptCertificate;
  readonly refusals: Refusals;
  readonly telemetry: Telemetry;
}

/** Serves until `stop`. Throws UserError, NatsServerProblem and NatsProblem. */
export async function serveNodesNats(
  { environment: env }: Manager,
  { accept, calls, certificate, dataDir, leafNodes, listen, refusals, telemetry, webSockets }: NodesNatsOptions,
): Promise<{ stop(): Promise<void> }> {
  const { clock, managerId, random } = env;
  const { log } = telemetry;
  const undo: (() => Promise<void> | void)[] = [];
  const stop = async (): Promise<void> => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const identity = await openNodesNatsIdentity(env, certificate, leafNodes?.names ?? []);
    undo.push(() => identity.stop());
    const [startedWith] = identity.fingerprints();
    const [issuer, systemUser, nodesUser] = [createSigningAccount(), createUser(), createUser()];
    const flags = new Map([
      [listen.port, "--listen-nodes-nats"],
      [webSockets?.port, "--listen-nodes-wss"],
      [leafNodes?.listen.port, "--listen-leaf-nodes"],
    ]);
    const server = await startNodesServer({
      dataDir: join(dataDir, "nodes"),
      host: listen.host,
      port: listen.port,
      // Its third descriptor, after the standard ones.
      inherited: [identity.file],
      logFile: join(dataDir, "nodes-nats.log"),
      telemetry,
      accounts: {
        managerId,
        issuer: issuer.getPublicKey(),
        systemUser: systemUser.getPublicKey(),
        nodesUser: nodesUser.getPublicKey(),
        tlsFile: "/proc/self/fd/3",
        leafNodes: leafNodes === null ? null : formatHostPort(leafNodes.listen),
        webSockets: webSockets === null ? null : formatHostPort(webSockets),
      },
    }).catch((error: unknown) => {
      const port = error instanceof NatsServerProblem ? error.port : null;
      const flag = port === null ? undefined : flags.get(port);
      if (flag === undefined) throw error;
      const sentence = `port ${port} is in use by another process: stop that one, or choose another with ${flag}`;
      throw new UserError(sentence, { cause: error });
    });
    undo.push(() => server.stop());
    identity.onRenewed(() => server.reload());
    if (identity.fingerprints()[0] !== startedWith) server.reload();
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
        nodesLink: name,
        telemetry,
        random,
      });
      undo.push(() => link.drain());
      return link;
    };
    const system = await connect(systemUser, "access");
    const nodes = await connect(nodesUser, "nodes");

    const admission = new NodesAdmission({
      calls,
      clock,
      log,
      refusals,
      tokens: () => {
        const tokens = clusterOf(env)?.rootCa?.joinTokens;
        return { worker: tokens?.worker ?? "", manager: tokens?.manager ?? "" };
      },
      fingerprints: () => identity.fingerprints(),
      disconnect: (connection) => access.close(connection),
      onLeft: (id) => links.end(id, "its connection to NATS has ended"),
      onSite: (site) => sites.begin(site),
      onSiteLeft: (site) => sites.end(site, "the leaf node's connection to the manager has ended"),
    });
    const access = new NodesAccess({
      log,
      link: system,
      issuer,
      ownUser: nodesUser.getPublicKey(),
      admit: (attempt) => admission.admit(attempt),
      onGone: (connection) => admission.gone(connection),
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
      peerOf: (id) => admission.peerOf(id),
      payloadBytesMax: nodes.maxPayload,
      requestBytesMax,
      onFlood: (id) => {
        links.end(id, "the node sends useless messages");
        admission.flooded(id);
      },
    });
    undo.push(() => links.close());
    const sites = serveSiteLinks({
      clock,
      random: random.fork("site-links"),
      bus: new NatsBus(nodes),
      managerId,
      payloadBytesMax: nodes.maxPayload,
      onStream: (stream, site) => accept(stream, { address: admission.addressOf(site), site }),
      onFlood: (site) => {
        refusals.count("nats", "useless-messages", admission.addressOf(site));
        log.warn({ site }, "somebody at the site sends useless messages");
      },
    });
    undo.push(() => sites.close());
    const tokens = env.store.watch(({ changes }) => {
      if (changes.some(({ table }) => table === "cluster")) admission.tokensChanged();
    });
    undo.push(() => tokens.unsubscribe());
    log.info({ url: server.url }, "serving nodes over NATS");
    return { stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
