/**
 * The measured managers: Muster's own, and a stock dockerd as the peer. Each starts in a new folder on loopback and is stopped
 * by pid.
 */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { get, type Agent, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { connectUnix } from "../edges/grpc/client.ts";
import {
  ControlService,
  ListServicesRequest,
  ListServicesRequest_Filters,
  ListServiceStatusesRequest,
} from "../proto/gen/messages.ts";
import { freePort } from "../test/fixtures/ports.ts";
import { unmountBelow } from "../test/support/mounts.ts";
import { cpuSeconds, memoryMiB, processTree } from "./processes.ts";
import { measuringTurns } from "./turns.ts";

export interface Peer {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  /** Its control socket; of dockerd, the same as `dockerSocket`. */
  readonly socket: string;
  /** The start of a command line for this manager. */
  readonly commandLine: readonly string[];
  /** Socket of Docker's Engine API. */
  readonly dockerSocket: string;
  workerToken(): string;
  /** Creates a service with so many replicas and returns immediately. */
  createService(name: string, replicas: number): void;
  /** Number of running tasks of the service, according to the manager. */
  running(name: string): Promise<number>;
  /** Deploys a Compose file and returns once the manager has accepted all of it. */
  deployStack(name: string, composeFile: string): void;
  /** The manager with its NATS. */
  pids(): readonly number[];
  /** CPU seconds of the manager with its NATS so far. */
  cpu(): number;
  memory(which: "VmRSS" | "VmHWM"): number;
  stop(): Promise<void>;
}

const startTimeoutMs = 30_000;
/** Fine enough for starts of a second, and little load beside one. */
const answerPollMs = 10;
const program = fileURLToPath(new URL("../bin/muster", import.meta.url));

export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = startTimeoutMs,
): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen within ${timeoutMs / 1_000} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function succeeds(command: string, args: readonly string[]): boolean {
  try {
    execFileSync(command, args, { stdio: "ignore", timeout: 10_000 });
    return true;
  } catch {
    return false;
  }
}

async function ended(child: ChildProcess, graceMs: number): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const force = setTimeout(() => child.kill("SIGKILL"), graceMs);
  await exit;
  clearTimeout(force);
}

export interface MusterPeer extends Peer {
  /** For `turnsFromNow`. */
  readonly turnsSocket: string;
  /** Ends it by that signal, starts it again on its data, and returns when its control socket answers a request, in milliseconds. */
  restart(signal: "SIGTERM" | "SIGKILL"): Promise<number>;
}

interface MusterOptions {
  /** Its turns can be measured. */
  readonly measuresTurns?: boolean;
  /** Its address; default: loopback. */
  readonly host?: string;
  /** The start of the command line that execs it, in another network; default: this one. */
  readonly inside?: readonly string[];
}

/** `flags`: further flags of the manager. */
export async function startMuster(flags: readonly string[] = [], options: MusterOptions = {}): Promise<MusterPeer> {
  const { host = "127.0.0.1", inside = [], measuresTurns = false } = options;
  const dir = mkdtempSync(join(tmpdir(), "muster-bench-"));
  const port = await freePort();
  const socket = join(dir, "control.sock");
  const muster = (...args: string[]): string =>
    execFileSync(program, ["--host", `unix://${socket}`, ...args], {
      encoding: "utf8",
      timeout: 60_000,
    }).trim();
  const own = ["manager", "--data-dir", dir, "--listen", `${host}:${port}`, "--advertise", host, ...flags];
  const [file = program, ...args] = [...inside, program, ...own];
  const turnsSocket = join(dir, "turns.sock");
  const env = { ...process.env, ...(measuresTurns ? measuringTurns(turnsSocket) : {}) };
  const spawned = (): ChildProcess => spawn(file, args, { env, stdio: ["ignore", "ignore", "inherit"] });
  let child = spawned();
  const stop = async (): Promise<void> => {
    await ended(child, 10_000);
    rmSync(dir, { recursive: true, force: true });
  };
  const answers = (): boolean => existsSync(socket) && succeeds(program, ["--host", `unix://${socket}`, "ca"]);
  await until("muster's start", answers).catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  // Each time anew: its nats-server for nodes starts after the control socket.
  const pids = (): readonly number[] => processTree(child.pid as number);
  const { ListServices, ListServiceStatuses } = ControlService.methods;
  const running = async (name: string): Promise<number> => {
    const channel = await connectUnix(socket);
    try {
      const filters = ListServicesRequest_Filters.create({ names: [name] });
      const found = await channel.unary(ListServices, ListServicesRequest.create({ filters }));
      const services = found.services.map(({ id }) => id);
      const { statuses } = await channel.unary(ListServiceStatuses, ListServiceStatusesRequest.create({ services }));
      return statuses[0]?.runningTasks ?? 0;
    } finally {
      channel.close();
    }
  };
  const answersNow = async (): Promise<boolean> => {
    const channel = await connectUnix(socket).catch(() => null);
    if (channel === null) return false;
    try {
      await channel.unary(ListServices, ListServicesRequest.create({}), { timeoutMs: 1_000 });
      return true;
    } catch {
      return false;
    } finally {
      channel.close();
    }
  };
  const restart = async (signal: "SIGTERM" | "SIGKILL"): Promise<number> => {
    const exit = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await exit;
    const begun = performance.now();
    child = spawned();
    while (!(await answersNow())) {
      if (performance.now() - begun > startTimeoutMs) throw new Error("muster did not start again");
      await new Promise((resolve) => setTimeout(resolve, answerPollMs));
    }
    return performance.now() - begun;
  };
  return {
    name: "muster",
    running,
    restart,
    turnsSocket,
    host,
    port,
    socket,
    commandLine: [program, "--host", `unix://${socket}`],
    dockerSocket: join(dir, "docker.sock"),
    workerToken: () => muster("token", "worker"),
    createService: (name, replicas) =>
      void muster("service", "create", "--detach", "--name", name, "--replicas", String(replicas), "bench:1"),
    deployStack: (name, composeFile) => void muster("stack", "deploy", "--detach", "-c", composeFile, name),
    pids,
    cpu: () => cpuSeconds(pids()),
    memory: (which) => memoryMiB(pids(), which),
    stop,
  };
}

/** The answer to a GET of Docker's Engine API. `agent`: keeps its connection for the next one. */
export async function engineRead(dockerSocket: string, path: string, agent?: Agent): Promise<Buffer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) =>
    get({ socketPath: dockerSocket, path, ...(agent === undefined ? {} : { agent }) }, resolve).once("error", reject),
  );
  return Buffer.concat((await response.toArray()) as Buffer[]);
}

/** Likewise, of JSON. */
export async function engineGet<Answer>(dockerSocket: string, path: string, agent?: Agent): Promise<Answer> {
  return JSON.parse((await engineRead(dockerSocket, path, agent)).toString()) as Answer;
}

export function hasDockerd(): boolean {
  return process.getuid?.() === 0 && succeeds("dockerd", ["--version"]);
}

export async function startDockerd(): Promise<Peer> {
  const dir = mkdtempSync(join(tmpdir(), "dockerd-bench-"));
  const port = await freePort();
  const host = `unix://${join(dir, "docker.sock")}`;
  const docker = (...args: string[]): string =>
    execFileSync("docker", ["-H", host, ...args], { encoding: "utf8", timeout: 60_000 }).trim();
  const child = spawn(
    "dockerd",
    [
      "--data-root",
      join(dir, "data"),
      "--exec-root",
      join(dir, "exec"),
      "--pidfile",
      join(dir, "pid"),
      "-H",
      host,
      "--bridge=none",
      "--iptables=false",
    ],
    { stdio: "ignore" },
  );
  const stop = async (): Promise<void> => {
    await ended(child, 15_000);
    unmountBelow(dir);
    rmSync(dir, { recursive: true, force: true });
  };
  try {
    await until("dockerd's start", () => succeeds("docker", ["-H", host, "version"]));
    docker("swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", `127.0.0.1:${port}`);
    docker("node", "update", "--availability", "drain", docker("info", "--format", "{{.Swarm.NodeID}}"));
  } catch (error) {
    await stop();
    throw error;
  }
  const pid = Number(readFileSync(join(dir, "pid"), "utf8"));
  const running = async (name: string): Promise<number> => {
    const filters = encodeURIComponent(JSON.stringify({ name: [name] }));
    const path = `/v1.41/services?status=true&filters=${filters}`;
    const [service] = await engineGet<readonly { readonly ServiceStatus: { readonly RunningTasks: number } }[]>(
      join(dir, "docker.sock"),
      path,
    );
    return service?.ServiceStatus.RunningTasks ?? 0;
  };
  return {
    name: "dockerd",
    running,
    host: "127.0.0.1",
    port,
    socket: join(dir, "docker.sock"),
    commandLine: ["docker", "-H", host],
    dockerSocket: join(dir, "docker.sock"),
    workerToken: () => docker("swarm", "join-token", "-q", "worker"),
    createService: (name, replicas) =>
      void docker(
        "service",
        "create",
        "--detach",
        "--no-resolve-image",
        "--name",
        name,
        "--replicas",
        String(replicas),
        "bench:1",
      ),
    deployStack: (name, composeFile) =>
      void docker("stack", "deploy", "--resolve-image", "never", "-c", composeFile, name),
    pids: () => [pid],
    cpu: () => cpuSeconds([pid]),
    memory: (which) => memoryMiB([pid], which),
    stop,
  };
}
