/**
 * Our own nats-server, for `muster up` and for a manager without `--nats`.
 *
 * States: `starting` → `running` → (it exits) `waiting` → `starting` …; any → `stopped` by its owner.
 *
 * V1: one manager runs one nats-server on a data dir: a second manager is refused; the nats-server that a killed manager left
 *     behind is terminated before a new one starts on its storage (nats-server itself does not lock it).
 * V2: it stops when its owner calls `stop`, not on Ctrl-C at the terminal: the manager has to drain first.
 * V4: it may be restarted while it runs, if it stops answering (`stuck-watch.ts` judges): as after an exit of its own.
 * V3: nobody connects without a certificate of the managers' CA; without `tls`, which tests use, without the password, which only
 *     this user can read.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, fstatSync, openSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { type Backoff, backoffMs, drawUpperHalf } from "../../lib/backoff.ts";
import { assert } from "../../lib/assert.ts";
import type { Random, Telemetry } from "../ports/index.ts";
import { SystemRandom } from "../system/random.ts";
import { canServeNodes, isSupported } from "./abilities.ts";
import { DiskWatch } from "./disk-watch.ts";
import { crash } from "./errors.ts";
import { greet } from "./greeting.ts";
import { endProcess, identify, isRunning, type ProcessIdentity } from "./process-identity.ts";
import { writeNodesConfig, type NodesAccounts } from "./nodes-server.ts";
import { findBinary } from "./server-binary.ts";
import {
  loopback,
  newCredentials,
  prepareFiles,
  readAccess,
  readOwner,
  type ServerAccess,
  type ServerCluster,
  type ServerFiles,
  type ServerTls,
  writeAccess,
  writeConfig,
  writeOwner,
} from "./server-files.ts";
import { NatsServerProblem } from "./server-problem.ts";

export type { ServerCluster, ServerTls } from "./server-files.ts";
export { NatsServerProblem } from "./server-problem.ts";

/** It checks its storage before it opens the port: about a gigabyte a second on an ordinary disk. */
const startMsMax = 60_000;
/** Short beside the 50 ms in which it starts on a small log: a manager waits for its answer. */
const startPollMs = 5;
/** Another process can take a port that was free before the server listens there. */
const portAttemptsMax = 5;
const greetingMs = 1_000;
/** It flushes its storage on SIGTERM. */
const stopGraceMs = 10_000;
/** A stuck server does not exit on SIGTERM, but flushes what it can. */
const stuckGraceMs = 3_000;
const restartBackoff: Backoff = { stepMs: 100, msMax: 5_000 };
/** The back-off resets only after the server has run this long. */
const serverHeldMsMin = 10_000;
/**
 * Its GOGC: collects at one and a half times the live heap instead of twice. Most of its memory is garbage (14 kB for each of
 * 600 joined nodes, 5 kB with this).
 */
const collectAfterPercent = "50";
/** Enough of its log to show why it exited. */
const logTailBytes = 2_000;

interface NatsServerOptions {
  readonly dataDir: string;
  /** Mutual TLS; absent: a password. */
  readonly tls?: ServerTls;
  /** Address or host name to listen on; default: loopback. Others than loopback need `tls`. */
  readonly host?: string;
  /** Default: the port of the last run if it is free, else `firstPort`, else any free port. */
  readonly port?: number;
  readonly firstPort?: number;
  /** A port that this process is going to listen on itself: not chosen. */
  readonly ownPort?: number;
  /** Absent: the server stands alone. */
  readonly cluster?: ServerCluster;
  /** Others know the port of the last run: fail if it is not free. */
  readonly keepsPort?: boolean;
  /** For this run, listen on any free port of loopback, which nobody else knows; the next run has its usual place again. */
  readonly isHidden?: boolean;
  /** Default: `nats-server` on PATH. */
  readonly binary?: string;
  /** Its output is appended to this file. */
  readonly logFile: string;
  readonly telemetry: Telemetry;
  readonly random?: Random;
  /** Open files that the server inherits, from descriptor 3 on. */
  readonly inherited?: readonly number[];
}

interface NodesServerOptions extends Omit<NatsServerOptions, "tls" | "cluster"> {
  readonly accounts: NodesAccounts;
}

/** A server without storage. */
type NodesServer = Pick<NatsServer, "url" | "port" | "pid" | "version" | "reload" | "stop">;

interface NatsServerExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly restartInMs: number;
}

export interface NatsServer {
  /** As this machine reaches it. */
  readonly url: string;
  readonly port: number;
  readonly user: string;
  readonly pass: string;
  /** Pid of the current process; changes with a restart. */
  readonly pid: number;
  readonly version: string;
  /** For `connectNats`. */
  readonly flushesEveryWrite: boolean;
  /** The disk of its storage. */
  readonly disk: DiskWatch;
  /** False between its exit and its next start. */
  readonly isRunning: boolean;
  /** Terminates the current process, which is then started again. */
  restart(why: string): void;
  /** Reads its certificate again. Connections stay, except those that a callout admitted: nats-server closes them. */
  reload(): void;
  /** Restarts it, so that all connections end; resolves when it answers again, or has been stopped. */
  renew(why: string): Promise<void>;
  /** Resolves when the process has exited. May be called twice. */
  stop(): Promise<void>;
  /** Called each time it exits without `stop`. */
  onExit(listener: (exit: NatsServerExit) => void): void;
}

/** Resolves when the server answers. Throws NatsServerProblem. */
export function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  return startAttempting(options, null);
}

/** A server for nodes. Resolves when it answers. Throws NatsServerProblem. */
export function startNodesServer({ accounts, ...options }: NodesServerOptions): Promise<NodesServer> {
  return startAttempting(options, accounts);
}

async function startAttempting(options: NatsServerOptions, nodes: NodesAccounts | null): Promise<NatsServer> {
  for (let attempt = 1; ; attempt += 1)
    try {
      return await startOnce(options, nodes);
    } catch (error) {
      // The next attempt chooses a free port, or throws "in-use" if it has to be that one.
      const isTaken = error instanceof NatsServerProblem && error.kind === "port-taken";
      if (!isTaken || attempt === portAttemptsMax) throw error;
    }
}

async function startOnce(options: NatsServerOptions, nodes: NodesAccounts | null): Promise<NatsServer> {
  const { binary, version } = await findBinary(options.binary);
  if (!isSupported(version))
    throw new NatsServerProblem(
      "failed",
      `${binary} is nats-server ${version}, which is too old: install 2.9 or newer`,
    );
  if (nodes !== null && !canServeNodes(version))
    throw new NatsServerProblem(
      "failed",
      `${binary} is nats-server ${version}, which cannot serve nodes: install 2.10 or newer`,
    );
  let disk: DiskWatch | null = null;
  try {
    const files = await prepareFiles(options.dataDir);
    if (nodes === null)
      // First of all: it frees space for what follows.
      disk = await DiskWatch.start({
        folder: files.storage,
        reserveFile: files.reserve,
        telemetry: options.telemetry,
      });
    await mkdir(dirname(options.logFile), { recursive: true });
    const manager = await takeOver(files, options.dataDir);
    const { cluster, isHidden = false } = options;
    const host = isHidden ? loopback : (options.host ?? loopback);
    const access = await chooseAccess(files, options, host);
    if (!isHidden) await writeAccess(files, access);
    const name = nodes?.managerId ?? cluster?.serverName ?? `muster-${manager.pid}-${access.port}`;
    const shownHost = host.includes(":") ? `[${host}]` : host;
    if (nodes !== null) await writeNodesConfig(files, { ...nodes, host: shownHost, port: access.port });
    const flushesEveryWrite =
      disk !== null &&
      (await writeConfig(files, {
        ...access,
        host: shownHost,
        tls: options.tls,
        cluster,
        name,
        version,
        diskBytes: disk.sizeBytes,
      }));
    const server = new SupervisedServer({
      ...options,
      binary,
      version,
      files,
      access,
      dialled: dialledAt(host),
      manager,
      serverName: name,
      flushesEveryWrite,
      disk,
    });
    await server.start();
    return server;
  } catch (error) {
    disk?.stop();
    throw asProblem(error, options.dataDir);
  }
}

interface Supervised extends NatsServerOptions {
  readonly binary: string;
  readonly version: string;
  readonly files: ServerFiles;
  readonly access: ServerAccess;
  /** The host at which this process reaches it. */
  readonly dialled: string;
  readonly manager: ProcessIdentity;
  readonly serverName: string;
  readonly flushesEveryWrite: boolean;
  /** Null for a server without storage. */
  readonly disk: DiskWatch | null;
}

class SupervisedServer implements NatsServer {
  readonly #options: Supervised;
  readonly #random: Random;
  readonly #listeners = new Set<(exit: NatsServerExit) => void>();
  #child: ChildProcess | null = null;
  #ended: Promise<void> = Promise.resolve();
  #pid = 0;
  /** Size of the log before the current process, in bytes. */
  #logFrom = 0;
  #stopped = false;
  #restarts = 0;
  #startedAt = 0;
  #restartTimer: NodeJS.Timeout | undefined;
  #restarting: Promise<void> = Promise.resolve();

  constructor(options: Supervised) {
    this.#options = options;
    this.#random = options.random ?? new SystemRandom();
  }

  get url(): string {
    return showUrl(this.#options.dialled, this.port);
  }
  get port(): number {
    return this.#options.access.port;
  }
  get user(): string {
    return this.#options.access.user;
  }
  get pass(): string {
    return this.#options.access.pass;
  }
  get pid(): number {
    return this.#pid;
  }
  get version(): string {
    return this.#options.version;
  }
  get flushesEveryWrite(): boolean {
    return this.#options.flushesEveryWrite;
  }

  get disk(): DiskWatch {
    const { disk } = this.#options;
    assert(disk !== null, "V5: a server without storage has no disk");
    return disk;
  }

  get isRunning(): boolean {
    return this.#child !== null && !hasExited(this.#child);
  }

  restart(why: string): void {
    const child = this.#child;
    if (this.#stopped || child === null || hasExited(child)) return;
    this.#options.telemetry.log.error({ pid: child.pid, why }, "nats-server is stuck: restarting it");
    terminate(child, stuckGraceMs);
  }

  async renew(why: string): Promise<void> {
    const child = this.#child;
    if (child !== null && !hasExited(child)) {
      this.#options.telemetry.log.info({ pid: child.pid, why }, "restarting nats-server");
      terminate(child, stopGraceMs);
      await this.#ended;
    }
    const deadline = performance.now() + startMsMax;
    while (!this.#stopped && performance.now() < deadline) {
      const next = this.#child;
      const isUp = next !== null && !hasExited(next) && (await this.#waitUntilAnswering(next)) === null;
      if (isUp) return;
      await new Promise((resolve) => setTimeout(resolve, startPollMs));
    }
  }

  reload(): void {
    // A server that is down reads them when it starts.
    if (this.isRunning) this.#child?.kill("SIGHUP");
  }

  onExit(listener: (exit: NatsServerExit) => void): void {
    this.#listeners.add(listener);
  }

  /** The first start: its caller handles a failure. */
  async start(): Promise<void> {
    const child = await this.#launch();
    const failure = await this.#waitUntilAnswering(child);
    if (failure === null) {
      child.once("exit", (code, signal) => this.#died(code, signal));
      // It may have exited between its answer and this line.
      if (hasExited(child)) this.#died(child.exitCode, child.signalCode);
      return;
    }
    await this.stop();
    throw failure;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#options.disk?.stop();
    clearTimeout(this.#restartTimer);
    await this.#restarting;
    const child = this.#child;
    if (child !== null && !hasExited(child)) {
      terminate(child, stopGraceMs);
      await this.#ended;
    }
    await writeOwner(this.#options.files, {
      manager: { ...this.#options.manager, stamp: "ended" },
      server: null,
    }).catch(() => undefined);
  }

  async #launch(): Promise<ChildProcess> {
    const { binary, files, inherited = [], logFile, manager } = this.#options;
    const output = openSync(logFile, "a", 0o600);
    this.#logFrom = fstatSync(output).size;
    // V2: its own session, which the terminal's signals do not reach.
    const child = spawn(binary, ["-c", files.config], {
      stdio: ["ignore", output, output, ...inherited],
      detached: true,
      env: { GOGC: collectAfterPercent, ...process.env },
    });
    closeSync(output);
    this.#child = child;
    this.#startedAt = performance.now();
    this.#ended = new Promise((resolve) => {
      child.once("exit", () => resolve());
      child.once("error", () => resolve());
    });
    if (child.pid !== undefined) {
      this.#pid = child.pid;
      await writeOwner(files, { manager, server: await identify(child.pid) });
    }
    return child;
  }

  async #waitUntilAnswering(child: ChildProcess): Promise<NatsServerProblem | null> {
    const { access, dialled, serverName } = this.#options;
    const deadline = performance.now() + startMsMax;
    while (performance.now() < deadline) {
      if (hasExited(child)) return this.#exitProblem(child);
      const outcome = await greet(dialled, access.port, greetingMs);
      if (outcome.kind === "greeted" && outcome.greeting.serverName === serverName) return null;
      await new Promise((resolve) => setTimeout(resolve, startPollMs));
    }
    return new NatsServerProblem(
      "failed",
      `nats-server did not answer within ${startMsMax / 1_000} s: see ${this.#options.logFile}`,
    );
  }

  async #exitProblem(child: ChildProcess): Promise<NatsServerProblem> {
    const { logFile } = this.#options;
    const written = await readFile(logFile).catch(() => Buffer.alloc(0));
    const tail = written.subarray(Math.max(this.#logFrom, written.length - logTailBytes)).toString();
    // A server for nodes listens at several.
    const taken = /(\d+): bind: address already in use/.exec(tail)?.[1];
    if (taken !== undefined) return portInUse("port-taken", Number(taken));
    const last = tail.trimEnd().split("\n").at(-1) ?? "";
    return new NatsServerProblem(
      "failed",
      `nats-server exited at once (${child.exitCode ?? child.signalCode ?? "not started"}: ${last}): see ${logFile}`,
    );
  }

  #died(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#stopped) return;
    if (performance.now() - this.#startedAt >= serverHeldMsMin) this.#restarts = 0;
    this.#restarts += 1;
    const restartInMs = Math.round(drawUpperHalf(this.#random)(backoffMs(restartBackoff, this.#restarts)));
    const { telemetry } = this.#options;
    telemetry.log.error(
      { code, signal, restartInMs, logFile: this.#options.logFile },
      "nats-server exited; restarting it",
    );
    telemetry.metrics
      .counter("muster_nats_server_restarts_total", "Restarts of our own nats-server after it exited.")
      .add();
    for (const listener of this.#listeners) listener({ code, signal, restartInMs });
    this.#restartTimer = setTimeout(() => {
      this.#restarting = this.#restart().catch(crash);
    }, restartInMs);
  }

  async #restart(): Promise<void> {
    const child = await this.#launch();
    if (hasExited(child)) return this.#died(child.exitCode, child.signalCode);
    child.once("exit", (code, signal) => this.#died(code, signal));
  }
}

/** Kills it if it does not end by itself. */
function terminate(child: ChildProcess, graceMs: number): void {
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), graceMs);
  child.once("exit", () => clearTimeout(timer));
}

function hasExited(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null || child.pid === undefined;
}

/** V1. Returns this process, the new owner. */
async function takeOver(files: ServerFiles, dataDir: string): Promise<ProcessIdentity> {
  const manager = await identify(process.pid);
  if (manager === null) throw new NatsServerProblem("failed", "cannot identify this process: is /proc mounted?");
  const owner = await readOwner(files);
  if (owner !== null && (await isRunning(owner.manager))) {
    throw new NatsServerProblem(
      "in-use",
      `the data dir ${dataDir} is in use by process ${owner.manager.pid}: stop that one, or choose another data dir`,
    );
  }
  if (owner?.server != null) await endProcess(owner.server, stopGraceMs);
  await writeOwner(files, { manager, server: null });
  return manager;
}

async function chooseAccess(
  files: ServerFiles,
  { firstPort, isHidden = false, keepsPort = false, ownPort, port: wanted }: NatsServerOptions,
  host: string,
): Promise<ServerAccess> {
  const known = await readAccess(files);
  const credentials = known ?? newCredentials();
  if (isHidden) return { ...credentials, port: await freePortOf([], host) };
  const needed = wanted !== undefined && wanted !== 0 ? wanted : keepsPort ? known?.port : undefined;
  if (needed !== undefined) {
    if ((await freePort(needed, host)) === null) throw portInUse("in-use", needed);
    return { ...credentials, port: needed };
  }
  const wished = [known?.port, firstPort].filter((port): port is number => port !== undefined && port !== ownPort);
  return { ...credentials, port: await freePortOf(wished, host) };
}

/** For a wildcard, loopback. */
function dialledAt(host: string): string {
  return host === "0.0.0.0" ? loopback : host === "::" ? "::1" : host;
}

export function showUrl(host: string, port: number): string {
  return `nats://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** One of the ports if it is free, else any free port. Throws NatsServerProblem. */
export async function freePortOf(wished: readonly number[], host: string): Promise<number> {
  for (const candidate of [...wished, 0]) {
    const port = await freePort(candidate, host);
    if (port !== null) return port;
  }
  throw new NatsServerProblem("failed", `no free port on ${host}`);
}

/** The port if it is free (0: any free port), otherwise null. Throws NatsServerProblem for an address of another machine. */
function freePort(port: number, host: string): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EADDRNOTAVAIL") return resolve(null);
      const sentence = `${host} is not an address of this machine: choose one of its addresses`;
      reject(new NatsServerProblem("failed", sentence, { cause: error }));
    });
    server.listen(port, host, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : null));
    });
  });
}

function portInUse(kind: "in-use" | "port-taken", port: number): NatsServerProblem {
  const sentence = `port ${port} is in use by another process: stop that one, or choose another port for NATS`;
  return new NatsServerProblem(kind, sentence, { port });
}

function asProblem(error: unknown, dataDir: string): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (
    code === "EACCES" ||
    code === "EPERM" ||
    code === "EROFS" ||
    code === "ENOTDIR" ||
    code === "EEXIST" ||
    code === "ENOSPC"
  ) {
    return new NatsServerProblem(
      "unwritable",
      `the data dir ${dataDir} cannot be written (${code}): make it writable for this user, or choose another`,
      { cause: error },
    );
  }
  return error;
}
