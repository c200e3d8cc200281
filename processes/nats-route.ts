/** How a node reaches its managers over NATS, kept in its data dir for later starts. */
import type { AgentDisk } from "../actors/agent/ports.ts";
import { UserError } from "../lib/user-error.ts";
import { isNatsUrl } from "./nats-dialer.ts";
import type { Seal } from "./sealed-dialer.ts";

const serversRecord = "nats-servers";
const sealRecord = "nats-seal";

interface NatsRoute {
  /** One or more. */
  readonly urls: readonly string[];
  /** Null: the servers are the managers' own, which admit the node by its certificate. */
  readonly seal: Seal | null;
}

/**
 * Null for a node that uses gRPC. `join`: empty for the URLs of an earlier start; `seal`: null without `join` for that of an earlier start.
 * Throws UserError.
 */
export async function natsRoute(
  disk: Pick<AgentDisk, "load" | "save">,
  join: readonly string[],
  seal: Seal | null,
): Promise<NatsRoute | null> {
  const isNew = join.length > 0;
  const urls = isNew ? join.filter(isNatsUrl) : await load(disk, serversRecord);
  if (urls.length === 0 && seal !== null)
    throw new UserError(
      "--seal requires --join with the URLs of the site's NATS: this node has no URLs of an earlier start",
    );
  if (isNew) await save(disk, serversRecord, urls);
  if (isNew || seal !== null)
    await save(disk, sealRecord, seal === null ? [] : [seal.site, seal.caFile ?? "", seal.credentialsFile ?? ""]);
  return urls.length === 0 ? null : { urls, seal: seal ?? (isNew ? null : sealOf(await load(disk, sealRecord))) };
}

function sealOf([site = "", caFile = "", credentialsFile = ""]: readonly string[]): Seal | null {
  return site === "" ? null : { site, caFile: caFile || null, credentialsFile: credentialsFile || null };
}

/** The lines of a record, none of them for a record that does not exist or is empty. */
async function load(disk: Pick<AgentDisk, "load">, record: string): Promise<readonly string[]> {
  const text = new TextDecoder().decode((await disk.load(record)) ?? new Uint8Array());
  return text === "" ? [] : text.split("\n");
}

function save(disk: Pick<AgentDisk, "save">, record: string, lines: readonly string[]): Promise<void> {
  return disk.save(record, new TextEncoder().encode(lines.join("\n")));
}
