/**
 * The files of our own nats-server, all in `<data dir>/nats`: `server.conf` (written at each start, 0600: it may contain the
 * password), `access.json` (port, user and password, created once, so that clients find the server again after a restart),
 * `owner.json` (the process that runs it), `jetstream/` (its storage).
 */
import { randomBytes } from "node:crypto";
import { mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { replaceFile } from "../system/whole-file.ts";
import { hasSyncInterval } from "./abilities.ts";
import type { ProcessIdentity } from "./process-identity.ts";

export interface ServerAccess {
  readonly port: number;
  readonly user: string;
  readonly pass: string;
}

interface ServerOwner {
  readonly manager: ProcessIdentity;
  readonly server: ProcessIdentity | null;
}

export interface ServerFiles {
  readonly config: string;
  readonly access: string;
  readonly owner: string;
  readonly storage: string;
  /** Space reserved for when the disk is full: see disk-watch.ts. */
  readonly reserve: string;
}

export async function prepareFiles(dataDir: string): Promise<ServerFiles> {
  const folder = join(dataDir, "nats");
  const storage = join(folder, "jetstream");
  await mkdir(storage, { recursive: true, mode: 0o700 });
  return {
    config: join(folder, "server.conf"),
    access: join(folder, "access.json"),
    owner: join(folder, "owner.json"),
    storage,
    reserve: join(folder, "reserve"),
  };
}

/** Where a server with that data dir stores the messages of a stream. */
export function messagesFolder(dataDir: string, stream: string): string {
  return join(dataDir, "nats", "jetstream", "jetstream", "$G", "streams", stream, "msgs");
}

export function newCredentials(): Pick<ServerAccess, "user" | "pass"> {
  return { user: "muster", pass: randomBytes(24).toString("base64url") };
}

export async function readAccess(files: ServerFiles): Promise<ServerAccess | null> {
  const fields = await readJson(files.access);
  const { port, user, pass } = fields;
  return typeof port === "number" && typeof user === "string" && typeof pass === "string" ? { port, user, pass } : null;
}

export async function writeAccess(files: ServerFiles, access: ServerAccess): Promise<void> {
  await replaceFile(files.access, JSON.stringify(access));
}

/** The server that starts next chooses its port as a new one does. */
export async function forgetAccess(dataDir: string): Promise<void> {
  await rm(join(dataDir, "nats", "access.json"), { force: true });
}

export async function readOwner(files: ServerFiles): Promise<ServerOwner | null> {
  const fields = await readJson(files.owner);
  const manager = asIdentity(fields["manager"]);
  return manager === null ? null : { manager, server: asIdentity(fields["server"]) };
}

export async function writeOwner(files: ServerFiles, owner: ServerOwner): Promise<void> {
  await replaceFile(files.owner, JSON.stringify(owner));
}

/**
 * Consumers keep their position in memory, a few kilobytes each; nothing else is stored there. JetStream's default is three
 * quarters of the machine's memory.
 */
const memoryStoreBytes = 64 * 1024 * 1024;

/** Its address unless its owner chooses another one. */
export const loopback = "127.0.0.1";

/** Files (PEM) of mutual TLS, read at each start of the server and when it reloads. */
export interface ServerTls {
  /** The CA whose certificates clients need. */
  readonly caFile: string;
  readonly certFile: string;
  readonly keyFile: string;
}

/** One cluster with other managers' servers. */
export interface ServerCluster {
  readonly name: string;
  /** The name of this server: for the cluster, another name is another server. */
  readonly serverName: string;
  /** host:port at which the other servers reach this one. */
  readonly route: string;
  /** `nats://host:port` of all servers, this one included. */
  readonly routes: readonly string[];
}

/** Resolves with whether the server will flush every write. */
export async function writeConfig(
  files: ServerFiles,
  options: ServerAccess & {
    readonly name: string;
    /** The address or host name to listen on, brackets included. */
    readonly host: string;
    readonly version: string;
    readonly diskBytes: number;
    /** Absent: clients need the password, over a connection in clear text. */
    readonly tls?: ServerTls | undefined;
    readonly cluster?: ServerCluster | undefined;
  },
): Promise<boolean> {
  const flushesEveryWrite = hasSyncInterval(options.version);
  const lines = [
    "# Written by Muster at each start: changes are lost.",
    `server_name: ${JSON.stringify(options.name)}`,
    `listen: "${options.host}:${options.port}"`,
    "# The size limit of a transaction, and so of the log.",
    "max_payload: 8MB",
    "# A reader that reads nothing for this long is disconnected; it reconnects and continues.",
    'write_deadline: "10s"',
    "jetstream {",
    `  store_dir: ${JSON.stringify(files.storage)}`,
    "  # The size of the disk. JetStream's default, three quarters of the free space at its start, shrinks with each start;",
    "  # Muster itself keeps space free: it stops writing before the disk is full.",
    `  max_file_store: ${options.diskBytes}`,
    `  max_memory_store: ${memoryStoreBytes}`,
    ...(flushesEveryWrite ? ["  # Acknowledge only what is on the disk.", "  sync_interval: always"] : []),
    "}",
    ...(options.tls === undefined ? passwordLines(options) : tlsLines(options.tls)),
    ...(options.cluster === undefined
      ? []
      : [...clusterLines(options.cluster, options.host, options.tls), ...accountLines(options)]),
    "",
  ];
  await replaceFile(files.config, lines.join("\n"));
  return flushesEveryWrite;
}

function passwordLines({ user, pass }: ServerAccess): readonly string[] {
  return ["authorization {", `  user: ${JSON.stringify(user)}`, `  password: ${JSON.stringify(pass)}`, "}"];
}

function tlsLines({ caFile, certFile, keyFile }: ServerTls): readonly string[] {
  return [
    "tls {",
    `  ca_file: ${JSON.stringify(caFile)}`,
    `  cert_file: ${JSON.stringify(certFile)}`,
    `  key_file: ${JSON.stringify(keyFile)}`,
    "  # Only clients with a certificate of this CA.",
    "  verify: true",
    "  # Seconds. A busy machine takes longer than the default of half a second.",
    "  timeout: 5",
    "}",
  ];
}

function clusterLines(
  { name, route, routes }: ServerCluster,
  host: string,
  tls: ServerTls | undefined,
): readonly string[] {
  return [
    "cluster {",
    `  name: ${JSON.stringify(name)}`,
    `  listen: "${host}:${route.slice(route.lastIndexOf(":") + 1)}"`,
    `  advertise: ${JSON.stringify(route)}`,
    `  routes: [${routes.map((each) => JSON.stringify(each)).join(", ")}]`,
    ...(tls === undefined ? [] : tlsLines(tls).map((line) => `  ${line}`)),
    "}",
  ];
}

/** Its manager's user of the system account, by which servers are removed from the cluster. */
export const systemUser = "system";

function accountLines({ user, pass }: ServerAccess): readonly string[] {
  const [everybody, password] = [JSON.stringify(user), JSON.stringify(pass)];
  return [
    "# Clients need a certificate. The password is for this server's manager, and for the system account alone.",
    `authorization { users: [{ user: ${everybody}, password: ${password} }] }`,
    `no_auth_user: ${everybody}`,
    `accounts { $SYS { users: [{ user: ${JSON.stringify(systemUser)}, password: ${password} }] } }`,
  ];
}

async function readJson(path: string): Promise<Readonly<Record<string, unknown>>> {
  try {
    const parsed: unknown = JSON.parse(await readFile(path, "utf8"));
    return typeof parsed === "object" && parsed !== null ? (parsed as Readonly<Record<string, unknown>>) : {};
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === "ENOENT") return {};
    throw error;
  }
}

function asIdentity(value: unknown): ProcessIdentity | null {
  if (typeof value !== "object" || value === null) return null;
  const { pid, stamp } = value as Record<string, unknown>;
  return typeof pid === "number" && typeof stamp === "string" ? { pid, stamp } : null;
}
