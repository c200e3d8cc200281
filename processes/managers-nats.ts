/**
 * Which NATS a manager without `--nats` uses: a nats-server of its own, or, if it has joined, that of the other managers. They
 * tell it over mutual TLS, with the cluster's certificates, where that is and give it the CA of NATS (docs/adr/0051).
 */
import { existsSync } from "node:fs";
import { timeMs } from "../proto/time.ts";
import { sentence } from "../actors/sentence.ts";
import type { FetchKeys } from "../actors/keys/data-keys.ts";
import type { GetDataKeysResponse } from "../proto/gen/messages.ts";
import type { NatsOptions } from "../runtime/nats/connection.ts";
import { NatsProblem } from "../runtime/nats/errors.ts";
import { showUrl, type NatsServer } from "../runtime/nats/server.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { UserError } from "../lib/user-error.ts";
import type { HostPort } from "./addresses.ts";
import { ownNatsFolder, startOwnNats } from "./move-own-nats.ts";
import { openNatsIdentity } from "./nats-identity.ts";

/** Kerberos's customary limit. Leases and certificates tolerate much more, but times of tasks would not be comparable. */
const clockSkewMsMax = 5 * 60_000;

/** Whether a manager with this data dir uses other managers' NATS, once it has joined. */
export function usesOthersNats(dataDir: string, vault: Vault, isJoining: boolean): boolean {
  if (vault.fields.natsServers.length > 0) return true;
  return !existsSync(ownNatsFolder(dataDir)) && (isJoining || vault.fields.nodeCertificate !== "");
}

/**
 * Asks managers, in this order, for the CA and the addresses of their NATS, and saves them. A manager that knows them continues
 * with these if none answers. Throws UserError.
 */
export async function learnNats(vault: Vault, managers: readonly string[], fetchKeys: FetchKeys): Promise<void> {
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
    vault.update({ natsCaCertificate, natsCaKey, natsServers });
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
  readonly access: Pick<NatsOptions, "servers" | "tls">;
  /** The own server; null if this manager uses those of others. */
  readonly server: NatsServer | null;
  /** URLs at which other managers reach the servers. */
  servers(): readonly string[];
  stop(): Promise<void> | void;
}

/** Where a manager's own server listens. */
interface Place {
  readonly listen: HostPort;
  /** The host at which other managers reach it. */
  readonly advertisedHost: string;
}

/** Throws NatsServerProblem. */
export async function openManagersNats(
  dataDir: string,
  vault: Vault,
  { advertisedHost, listen, telemetry }: Place & { readonly telemetry: Telemetry },
): Promise<ManagersNats> {
  const others = vault.fields.natsServers;
  if (others.length > 0) {
    const identity = await openNatsIdentity(dataDir, vault, { telemetry });
    const servers = (): readonly string[] => vault.fields.natsServers;
    return { access: { servers: others, tls: identity.clientTls }, server: null, servers, stop: () => identity.stop() };
  }
  const own = await startOwnNats(
    dataDir,
    vault,
    { telemetry },
    { host: listen.host, firstPort: listen.port + 1, ownPort: listen.port, keepsPort: vault.fields.peers.length > 0 },
  );
  const { access, server } = own;
  return { access, server, servers: () => [showUrl(advertisedHost, server.port)], stop: () => own.stop() };
}

/** For managers that use others' servers: says what to do about a connection that failed. */
export function unreachedNats(error: unknown, { server }: Pick<ManagersNats, "server">): unknown {
  if (server !== null || !(error instanceof NatsProblem) || error.kind !== "unreachable") return error;
  const [what = ""] = error.message.split(": ");
  return new UserError(
    `${what}: check that the manager there is running, and that managers reach each other at this port too`,
    { cause: error },
  );
}
