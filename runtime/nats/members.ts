/** The servers of the managers' own NATS cluster, as NATS itself counts them, and their removal. */
import { createHash } from "node:crypto";
import { SystemRandom } from "../system/random.ts";
import type { NatsOptions } from "./connection.ts";
import { isOfOtherAuthority } from "./dial-problem.ts";
import { NatsProblem } from "./errors.ts";
import { callJetStream, fieldsField, JetStreamError, parseFields, textField } from "./jetstream.ts";
import { Link } from "./link.ts";
import { blobStream, currentFollowers, followersOf, isLed, leaseStream, logStream } from "./streams.ts";

interface ClusterServers {
  /** Members, running or not. */
  readonly servers: readonly { readonly name: string; readonly isCurrent: boolean }[];
  /** For each stream: names of the servers with a current copy. */
  readonly copies: readonly (readonly string[])[];
}

const streams = [logStream, leaseStream, blobStream];
const callTimeoutMs = 3_000;
const firstConnectMs = 5_000;
/** Answered by the leader of the cluster alone, on the system account. */
const pingSubject = "$SYS.REQ.SERVER.PING.JSZ";

const idDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** NATS's text instead of the name of a member that no running server has been connected to since its own start. */
const unknownName = /\(peerID: ([0-9A-Za-z]{8})\)/;

/** NATS's id of a server in its groups: eight characters of a digest of the name (`getHash` in nats-server). */
export function peerIdOf(serverName: string): string {
  const [, id] = unknownName.exec(serverName) ?? [];
  if (id !== undefined) return id;
  const digest = createHash("sha256").update(serverName).digest().subarray(0, 8);
  return [...digest].map((byte) => idDigits[byte % idDigits.length]).join("");
}

/**
 * `system`: to one server of the cluster, as the user of its system account; `client`: to any, as everybody else. `known`: names
 * of servers, for members whose names NATS has forgotten. Throws NatsProblem while the servers have no leader.
 */
export async function readServers(
  system: NatsOptions,
  client: NatsOptions,
  known: readonly string[],
): Promise<ClusterServers> {
  const meta = await using(system, async (link) => {
    const body = new TextEncoder().encode(JSON.stringify({ leader_only: true }));
    const answer = await link.request(pingSubject, body, { timeoutMs: callTimeoutMs });
    if (answer.kind !== "reply") throw new NatsProblem("unavailable", "the nats-servers have no leader");
    return fieldsField(fieldsField(parseFields(answer.message.data) ?? {}, "data"), "meta_cluster");
  });
  const leader = textField(meta, "leader");
  if (leader === "") throw new NatsProblem("unavailable", "the nats-servers have no leader");
  const copies = await using(client, (link) => Promise.all(streams.map((stream) => currentCopies(link, stream))));
  const info = { cluster: meta };
  const current = currentFollowers(info);
  const names = followersOf(info).map((each) => textField(each, "name"));
  const servers = names.map((name) => ({ name: nameOf(name, known), isCurrent: current.includes(name) }));
  return { servers: [{ name: leader, isCurrent: true }, ...servers], copies };
}

function nameOf(name: string, known: readonly string[]): string {
  return (unknownName.test(name) ? known.find((each) => peerIdOf(each) === peerIdOf(name)) : null) ?? name;
}

/** Its copies then move to other servers. Throws NatsProblem; repeating it after a success has no effect. */
export function removeServer(system: NatsOptions, name: string): Promise<void> {
  return using(system, async (link) => {
    const removed = await callJetStream(link, "SERVER.REMOVE", { peer: name, peer_id: peerIdOf(name) }, callTimeoutMs);
    if (removed.kind === "ok" || removed.errCode === JetStreamError.serverNotMember) return;
    throw new NatsProblem("unavailable", `NATS did not remove the server ${name}: ${removed.reason}`);
  });
}

/** Whether a server answers, but not to certificates of this process's CA. */
export async function isClosedTo(options: NatsOptions): Promise<boolean> {
  return using({ ...options, firstConnectMs: 0 }, async () => false).catch(isOfOtherAuthority);
}

async function currentCopies(link: Link, stream: string): Promise<readonly string[]> {
  const found = await callJetStream(link, `STREAM.INFO.${stream}`, null, callTimeoutMs);
  if (found.kind !== "ok") throw new NatsProblem("unavailable", `${stream} does not answer: ${found.reason}`);
  if (!isLed(found.body)) throw new NatsProblem("unavailable", `${stream} has no leader`);
  const cluster = fieldsField(found.body, "cluster");
  return [textField(cluster, "leader"), ...currentFollowers(found.body)];
}

async function using<Result>(options: NatsOptions, work: (link: Link) => Promise<Result>): Promise<Result> {
  const random = (options.random ?? new SystemRandom()).fork("nats-members");
  const link = await Link.open({ firstConnectMs, ...options, random });
  try {
    return await work(link);
  } finally {
    link.close();
  }
}
