/**
 * Starts plugins, and reattaches to those that an earlier agent started (docs/reference/nomad-driver-protocol.md §1.1-1.6).
 *
 * L1: a launch or reattachment ends within its timeout, whatever the plugin does, and leaves behind no process that does
 *     not serve.
 * L2: a plugin's output before the handshake costs bounded memory, and later output none.
 * L3: an outcome other than `running` describes in one line what the plugin did and wrote, the error first.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createLocalIdentity, type LocalIdentity } from "../../../lib/pki/localhost.ts";
import type { LaunchOutcome, PluginAddress, PluginBinary, PluginLauncher } from "../../../runtime/ports/plugins.ts";
import type { Logger } from "../../../runtime/ports/index.ts";
import type { DuplexChannel } from "../../../runtime/ports/rpc.ts";
import { connectPlugin, type PluginEndpoint } from "../../grpc/client.ts";
import {
  Variable,
  appVersion,
  magicCookie,
  ownHostVariable,
  parseHandshake,
  portRange,
  type Handshake,
} from "../handshake.ts";
import { LogTail } from "./log-tail.ts";
import { signalProcess, startTicksOf } from "./process-watch.ts";
import { HostedPlugin, type PluginProcess } from "./running-plugin.ts";
import { sweepSockets } from "./stale-sockets.ts";

interface LauncherOptions {
  readonly log: Logger;
  /** Folder for logs, one file per plugin. Created if missing. */
  readonly logDir: string;
  /**
   * Folder for sockets, created if missing. A short path, since a socket's path has at most 107 bytes. Plugins pass it on to
   * their children, such as Nomad's executors, which serve tasks and outlive both the plugin and the agent: so all of them
   * share the folder, and it is never removed.
   */
  readonly socketDir: string;
  /** The environment that plugins inherit. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Timeout of handshake and connection, in milliseconds; default: go-plugin's minute. */
  readonly startTimeoutMs?: number;
}

const startTimeoutMsDefault = 60_000;
const connectTimeoutMs = 5_000;
const healthTimeoutMs = 5_000;
/** A handshake line with a certificate has 2 KiB. L2 */
const handshakeBytesMax = 64 * 1024;
/** Polling interval for a process that is not our child: go-plugin's. */
const pollMs = 1_000;

/** No driver's answer comes near this: an exec's has 8 KiB, a fingerprint a few. A larger one is not read, and ends its call or
 *  stream with RESOURCE_EXHAUSTED. */
const messageBytesMax = 16 * 1024 * 1024;

export function createPluginLauncher(options: LauncherOptions): PluginLauncher {
  const { log } = options;
  for (const folder of [options.logDir, options.socketDir]) mkdirSync(folder, { recursive: true, mode: 0o700 });
  void sweepSockets(options.socketDir);
  return {
    async launch(binary, onSpawned) {
      let launch: Launch | null = null;
      try {
        const identity = binary.autoMtls ? await createLocalIdentity(Date.now()) : null;
        launch = new Launch(binary, options, identity);
        const outcome = await launch.run(onSpawned);
        if (outcome.kind === "failed")
          log.warn({ plugin: binary.name, reason: outcome.reason }, "plugin failed to start");
        return outcome;
      } catch (error) {
        launch?.abandon();
        return {
          kind: "failed",
          reason: `plugin ${binary.name}: ${error instanceof Error ? error.message : String(error)}`,
        };
      }
    },
    reattach: (name, address) => reattach(name, address, options),
  };
}

function exitText(code: number | null, signal: NodeJS.Signals | null): string {
  return signal === null ? `exit code ${code ?? "unknown"}` : `signal ${signal}`;
}

/** One launch of one plugin. */
class Launch {
  readonly #binary: PluginBinary;
  readonly #options: LauncherOptions;
  readonly #identity: LocalIdentity | null;
  readonly #logFile: string;
  #child: ChildProcess | null = null;
  #tail: LogTail | null = null;
  #exit: string | null = null;
  readonly #exitListeners: ((how: string) => void)[] = [];

  constructor(binary: PluginBinary, options: LauncherOptions, identity: LocalIdentity | null) {
    this.#binary = binary;
    this.#options = options;
    this.#identity = identity;
    this.#logFile = join(options.logDir, `${binary.name.replaceAll(/[^\w.-]/g, "_")}.log`);
  }

  async run(onSpawned: (pid: number) => void): Promise<LaunchOutcome> {
    const { startTimeoutMs = startTimeoutMsDefault } = this.#options;
    const child = this.#spawn();
    const line = this.#firstLine(child);
    const spawnError = await new Promise<Error | null>((resolve) => {
      child.once("spawn", () => resolve(null));
      child.once("error", resolve);
    });
    if (spawnError !== null || child.pid === undefined) {
      this.abandon();
      return this.#failed(`cannot start it: ${spawnError?.message ?? "no process"}`);
    }
    onSpawned(child.pid);
    const startTicks = startTicksOf(child.pid) ?? "";
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<null>((resolve) => (timer = setTimeout(() => resolve(null), startTimeoutMs)));
    const first = await Promise.race([line, late]);
    clearTimeout(timer);
    if (first === null) return this.#abort(`no handshake within ${startTimeoutMs} ms`);
    if (first.kind !== "line") {
      return this.#abort(
        first.kind === "ended"
          ? "it exited before its handshake"
          : `it printed ${handshakeBytesMax} bytes without a handshake`,
      );
    }
    const handshake = parseHandshake(first.line);
    if (handshake.kind === "refused") return this.#abort(handshake.reason);
    if (this.#identity !== null && handshake.certificateDer === null)
      return this.#abort("TLS was requested, but it shows no certificate");
    return this.#connect(child.pid, startTicks, handshake);
  }

  async #connect(pid: number, startTicks: string, handshake: Handshake): Promise<LaunchOutcome> {
    let channel: DuplexChannel;
    try {
      channel = await connectTo(handshake.endpoint, this.#identity, handshake.certificateDer);
    } catch (error) {
      return this.#abort(`cannot connect to it: ${error instanceof Error ? error.message : String(error)}`);
    }
    const { name, autoMtls } = this.#binary;
    const { network, address } = handshake;
    const plugin = new HostedPlugin({
      name,
      process: this.#process(pid),
      channel,
      log: this.#options.log,
      tail: this.#tail as LogTail,
      address: autoMtls ? null : { network, address, pid, startTicks, logFile: this.#logFile },
      socket: network === "unix" ? address : null,
    });
    if (!(await plugin.isAnswering(healthTimeoutMs))) {
      await plugin.stop(0);
      return this.#failed("it failed its health check");
    }
    plugin.followOutput();
    return { kind: "running", plugin };
  }

  #spawn(): ChildProcess {
    const { binary, env } = { binary: this.#binary, env: this.#options.env };
    // Truncated by each start: an earlier process's output has been read, or no longer matters.
    const log = openSync(this.#logFile, "w", 0o600);
    closeSync(log);
    const append = openSync(this.#logFile, "a", 0o600);
    this.#tail = new LogTail(binary.name, this.#options.log, this.#logFile, "beginning");
    const child = spawn(binary.path, [...binary.args], {
      env: {
        ...env,
        // The host's own variables: a plugin that used them for itself would speak another protocol with us.
        [Variable.clientCertificate]: undefined,
        [Variable.multiplex]: undefined,
        [ownHostVariable]: "muster",
        ...binary.env,
        [magicCookie.name]: magicCookie.value,
        [Variable.versions]: String(appVersion),
        [Variable.minPort]: String(portRange.min),
        [Variable.maxPort]: String(portRange.max),
        [Variable.socketDir]: this.#options.socketDir,
        ...(this.#identity === null ? {} : { [Variable.clientCertificate]: this.#identity.certificatePem }),
      },
      stdio: ["ignore", "pipe", append],
      // In a separate session: Ctrl-C on our terminal is for us, and we stop our plugins in order.
      detached: true,
    });
    closeSync(append);
    this.#child = child;
    child.once("exit", (code, signal) => {
      this.#exit = exitText(code, signal);
      for (const listener of this.#exitListeners.splice(0)) listener(this.#exit);
    });
    return child;
  }

  /** The first line of standard output. The rest is discarded, so that the plugin does not block on a full pipe. L2 */
  #firstLine(
    child: ChildProcess,
  ): Promise<{ readonly kind: "line"; readonly line: string } | { readonly kind: "ended" | "too-long" }> {
    return new Promise((resolve) => {
      let text = "";
      let isFirst = true;
      child.stdout?.on("error", () => {});
      child.stdout?.on("data", (chunk: Buffer) => {
        if (!isFirst) return;
        text += chunk.toString("latin1");
        const end = text.indexOf("\n");
        if (end === -1 && text.length <= handshakeBytesMax) return;
        isFirst = false;
        resolve(end === -1 ? { kind: "too-long" } : { kind: "line", line: text.slice(0, end) });
        text = "";
      });
      // The exit of the process, not the end of the pipe, which a grandchild may hold open. Its output is read first.
      child.once("exit", () =>
        setTimeout(() => {
          if (!isFirst) return;
          isFirst = false;
          resolve(text.trim() === "" ? { kind: "ended" } : { kind: "line", line: text });
        }, 20),
      );
    });
  }

  #process(pid: number): PluginProcess {
    const child = this.#child as ChildProcess;
    return {
      pid,
      onExit: (listener) => {
        const how = this.#exit;
        if (how === null) this.#exitListeners.push(listener);
        else queueMicrotask(() => listener(how));
      },
      kill: () => void child.kill("SIGKILL"),
      release: () => {
        child.stdout?.destroy();
        child.unref();
      },
    };
  }

  /** Kills the process, waits for its exit, and reports what happened. L1 */
  async #abort(reason: string): Promise<LaunchOutcome> {
    const child = this.#child;
    const wasGone = this.#exit !== null;
    if (child !== null && !wasGone) {
      await new Promise<void>((resolve) => {
        this.#exitListeners.push(() => resolve());
        this.#killAll();
      });
    } else this.#killAll();
    this.abandon();
    const output = this.#tail?.lastWords() ?? "";
    const exit = wasGone ? ` (${this.#exit})` : "";
    return this.#failed(`${reason}${exit}${output === "" ? "" : `; its output: ${output}`}`);
  }

  /** Including its children: a plugin that never served has no tasks to preserve. */
  #killAll(): void {
    const pid = this.#child?.pid;
    if (pid === undefined) return;
    try {
      process.kill(-pid, "SIGKILL");
    } catch {
      // It has already exited.
    }
  }

  #failed(reason: string): LaunchOutcome {
    return { kind: "failed", reason: `plugin ${this.#binary.name}: ${reason}` };
  }

  /** Releases everything of a failed launch. */
  abandon(): void {
    this.#killAll();
    this.#child?.stdout?.destroy();
    this.#tail?.close();
  }
}

function connectTo(
  endpoint: PluginEndpoint,
  identity: LocalIdentity | null,
  certificateDer: Buffer | null,
): Promise<DuplexChannel> {
  const plain = { timeoutMs: connectTimeoutMs, messageBytesMax };
  if (identity === null || certificateDer === null) return connectPlugin(endpoint, plain);
  const lines = certificateDer.toString("base64").replaceAll(/.{64}/g, "$&\n");
  const peerCertificatePem = `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`;
  const { certificatePem, keyPem } = identity;
  return connectPlugin(endpoint, { ...plain, tls: { certificatePem, keyPem, peerCertificatePem } });
}

/** Watches a process that is not our child. */
function foundProcess(address: PluginAddress): PluginProcess {
  const listeners: ((how: string) => void)[] = [];
  let isGone = false;
  const timer = setInterval(() => poll(), pollMs);
  timer.unref();
  const poll = (): void => {
    if (isGone || startTicksOf(address.pid) === address.startTicks) return;
    isGone = true;
    clearInterval(timer);
    for (const listener of listeners.splice(0)) listener("unknown exit status");
  };
  return {
    pid: address.pid,
    onExit: (listener) => {
      if (isGone) queueMicrotask(() => listener("unknown exit status"));
      else listeners.push(listener);
    },
    kill: () => {
      signalProcess(address.pid, address.startTicks, "SIGKILL");
      // Sooner than the next poll: a killed process exits almost at once.
      setTimeout(poll, 20).unref();
    },
    release: () => clearInterval(timer),
  };
}

/** Kills a running process that does not answer, and waits for its exit, since another is started next. L1 */
async function killFound(address: PluginAddress): Promise<void> {
  signalProcess(address.pid, address.startTicks, "SIGKILL");
  for (let polls = 0; polls < 200 && startTicksOf(address.pid) === address.startTicks; polls += 1)
    await new Promise((resolve) => setTimeout(resolve, 10));
  if (address.network === "unix") rmSync(address.address, { force: true });
}

async function reattach(name: string, address: PluginAddress, options: LauncherOptions): Promise<LaunchOutcome> {
  const failed = (reason: string): LaunchOutcome => ({ kind: "failed", reason: `plugin ${name}: ${reason}` });
  if (startTicksOf(address.pid) !== address.startTicks) return failed(`process ${address.pid} has exited`);
  const colon = address.address.lastIndexOf(":");
  const endpoint: PluginEndpoint =
    address.network === "unix"
      ? { path: address.address }
      : { host: address.address.slice(0, colon), port: Number(address.address.slice(colon + 1)) };
  let channel: DuplexChannel;
  try {
    channel = await connectTo(endpoint, null, null);
  } catch (error) {
    await killFound(address);
    return failed(`it is running, but cannot connect to it: ${error instanceof Error ? error.message : String(error)}`);
  }
  const plugin = new HostedPlugin({
    name,
    process: foundProcess(address),
    channel,
    log: options.log,
    tail: new LogTail(name, options.log, address.logFile, "end"),
    address,
    socket: address.network === "unix" ? address.address : null,
  });
  if (!(await plugin.isAnswering(healthTimeoutMs))) {
    plugin.release();
    await killFound(address);
    return failed("it is running, but failed its health check");
  }
  plugin.followOutput();
  return { kind: "running", plugin };
}
