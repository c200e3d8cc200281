/** One node agent on this machine: the agent's actors on the real clock, disk, network and drivers. */
import { cpus, machine, totalmem } from "node:os";
import { basename, join, resolve } from "node:path";
import { startAgent, type Agent, type AgentState } from "../actors/agent/agent.ts";
import type { CertificateMaker, Dialer, NodeFacts } from "../actors/agent/ports.ts";
import { driveDataplane } from "../actors/agent/node-dataplane.ts";
import { nodeResolver } from "../linux/task-network/resolv-conf.ts";
import { openNetworkTools } from "../linux/task-network/tools.ts";
import { createNameServers } from "../edges/dns/server.ts";
import { volumeDirectory } from "../edges/csi/places.ts";
import { dataplaneLauncher } from "../edges/dataplane/driver-process.ts";
import type { Generation } from "../machines/dataplane/generation.ts";
import type { GenericResource } from "../proto/gen/messages.ts";
import { Host } from "../runtime/host.ts";
import { createKeyAndCsr, describeCertificate } from "../lib/pki/index.ts";
import type { RecordingRing } from "../runtime/recording/ring.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { FileDisk } from "../runtime/system/file-disk.ts";
import { systemProbes } from "../runtime/system/probes.ts";
import { SystemRandom } from "../runtime/system/random.ts";
import { formatHostPort, parseHostPort } from "./addresses.ts";
import { openCsi, type CsiSocketPaths } from "./csi.ts";
import { openDataDir } from "./data-dir.ts";
import { defaultPort, dialer } from "./dialer.ts";
import { isNatsUrl, natsDialer } from "./nats-dialer.ts";
import { natsRoute } from "./nats-route.ts";
import { sealedDialer, type Seal } from "./sealed-dialer.ts";
import { openDrivers, taskUsers, type DriverChoice } from "./drivers.ts";
import { UserError } from "../lib/user-error.ts";
import { version } from "../lib/version.ts";

interface AgentProcessOptions {
  /** `ADDR:PORT` of a manager, or URLs of NATS; empty for a node that has joined before and knows its managers. */
  readonly join: readonly string[];
  /** Reach the managers through the NATS at the URLs of `join`, or of an earlier start; absent or null: as at an earlier start. */
  readonly seal?: Seal | null;
  /** Ignored once the node has its certificate. */
  readonly token: string;
  readonly dataDir: string;
  readonly hostname: string;
  /** Address that other nodes send its tasks' packets to; absent: the address that managers see. */
  readonly dataPathAddress?: string;
  /** The engine's labels: `engine.labels.k` in constraints. */
  readonly labels: Readonly<Record<string, string>>;
  /** Absent: the node has none. */
  readonly genericResources?: readonly GenericResource[];
  /** Storage plugins in addition to those of the data dir. */
  readonly csiPlugins?: CsiSocketPaths;
  /** Driver plugins in addition to those of the data dir. */
  readonly drivers?: DriverChoice;
  /** Executable of the dataplane driver that programs the node's network, and its protocol; absent: no driver. */
  readonly dataplane?: { readonly path: string; readonly generation: Generation };
  /** Keeps the last minutes of the agent's actors; null or absent: nothing does. */
  readonly recorder?: RecordingRing | null;
}

export interface AgentProcess extends Agent {
  /** Resolves with the node's first session of this life; rejects with UserError when it cannot get a certificate. */
  joined(): Promise<void>;
  /**
   * Resolves when the start is complete: with the first session, or when a node that has joined before has tried to get one, since its
   * tasks run without managers as well. Rejects as `joined` does.
   */
  ready(): Promise<void>;
}

/**
 * Starts an agent, which retries by itself from here on. Throws UserError when the data dir cannot be used or the address is
 * invalid. `onBroken` receives the error of a broken invariant, after which the process must exit; by default it is thrown
 * uncaught.
 */
export async function runAgent(
  options: AgentProcessOptions,
  telemetry: Telemetry,
  onBroken: (error: unknown) => void = rethrow,
): Promise<AgentProcess> {
  const { dataDir, hostname, labels, token } = options;
  const [place = null] = options.join;
  const address = place === null || isNatsUrl(place) ? place : formatHostPort(parseHostPort(place, defaultPort));
  const folder = openDataDir(dataDir, true);
  const csi = openCsi(dataDir, options.csiPlugins ?? new Map());
  const clock = new SystemClock();
  const drivers = openDrivers(options.drivers ?? noDrivers, { dataDir, clock, log: telemetry.log });
  const host = new Host({ clock, telemetry, onCrash: (_, error) => onBroken(error) });
  const random = new SystemRandom();
  const dataplane = options.dataplane === undefined ? null : openDataplane(options.dataplane);
  const disk = await FileDisk.open(join(dataDir, "state"));
  const route = await natsRoute(disk, options.join, options.seal ?? null);
  const agent = startAgent({
    clock,
    random,
    telemetry,
    host,
    ...(dataplane === null ? {} : { dataplane }),
    dialer: dialerFor(),
    disk,
    certificates,
    facts: nodeFacts(),
    probes: systemProbes,
    ...(drivers === null
      ? {}
      : { plugins: drivers.plugins, networks: await openNetworkTools(dataDir, process.env["PATH"] ?? "") }),
    nameServers: createNameServers(() => nodeResolver(false).servers),
    csi: { sockets: csi, places: volumeDirectory(resolve(dataDir, "volumes")) },
    join: address === null ? null : { address, token },
    hostname,
    recorder: options.recorder ?? null,
    ...(options.dataPathAddress === undefined ? {} : { dataPathAddress: options.dataPathAddress }),
    labels,
    ...(options.genericResources === undefined ? {} : { genericResources: options.genericResources }),
  });
  function dialerFor(): Dialer {
    if (route === null) return dialer;
    const { seal, urls } = route;
    const over = { clock, random: random.fork("nats"), urls };
    return seal === null ? natsDialer({ ...over, token }) : sealedDialer({ ...over, ...seal });
  }
  function openDataplane({ generation, path }: NonNullable<AgentProcessOptions["dataplane"]>) {
    const name = basename(path);
    const launcher = dataplaneLauncher({ name, path, env: process.env, log: telemetry.log });
    return driveDataplane({ clock, random, telemetry, host, launcher }, { name, generation, settings: {} });
  }
  const shutdown = async (stopTasks: boolean): Promise<void> => {
    await agent.shutdown(stopTasks);
    await dataplane?.end();
    drivers?.release();
    csi.close();
    folder.release();
  };
  const isServing = ({ kind }: AgentState): boolean => kind === "serving";
  const hasTried = (state: AgentState): boolean => state.kind === "connecting" && state.reason !== "";
  return {
    ...forward(agent),
    shutdown,
    stop: () => void shutdown(false),
    joined: () => reached(agent, isServing),
    ready: () => reached(agent, (state) => isServing(state) || hasTried(state)),
  };
}

const noDrivers: DriverChoice = { directories: [], named: new Map(), configs: new Map(), users: taskUsers({}) };

const certificates: CertificateMaker = { createKeyAndCsr, describe: describeCertificate };

function nodeFacts(): NodeFacts {
  const cores = cpus().length;
  return {
    architecture: machine(),
    os: process.platform,
    nanoCpus: cores * 1e9,
    memoryBytes: totalmem(),
    engineVersion: version,
  };
}

function forward(agent: Agent): Agent {
  return {
    nodeId: () => agent.nodeId(),
    state: () => agent.state(),
    onState: (listener) => agent.onState(listener),
    tasks: () => agent.tasks(),
    shutdown: (stopTasks) => agent.shutdown(stopTasks),
    stop: () => agent.stop(),
  };
}

function reached(agent: Agent, isReached: (state: AgentState) => boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    const observe = (state: AgentState): void => {
      if (!isReached(state) && state.kind !== "failed" && state.kind !== "stopped") return;
      forget();
      if (isReached(state)) resolve();
      else reject(new UserError(state.kind === "failed" ? state.reason : "the agent was stopped before it joined"));
    };
    const forget = agent.onState(observe);
    observe(agent.state());
  });
}

function rethrow(error: unknown): never {
  throw error;
}
