/** `muster up`: a manager and an agent on this machine, in one process, with a nats-server beside it. */
import { RecordingRing } from "../runtime/recording/ring.ts";
import { join } from "node:path";
import { hostname } from "node:os";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { runAgent, type AgentProcess } from "./agent.ts";
import type { NetworkDefaults } from "../machines/allocation/network-defaults.ts";
import { forgetHost, rememberHost } from "./last-host.ts";
import { UserError } from "../lib/user-error.ts";
import type { HostPort } from "./addresses.ts";
import type { CsiSocketPaths } from "./csi.ts";
import type { DriverChoice } from "./drivers.ts";
import type { JsonOptions } from "./json-api.ts";
import type { ManagerProcess, ScheduledBackups } from "./manager.ts";
import { startManagerProcess } from "./manager-lives.ts";
import type { Starting } from "./signals.ts";

interface UpOptions {
  readonly dataDir: string;
  readonly listen: HostPort;
  readonly advertise: HostPort | null;
  readonly withAgent: boolean;
  readonly metrics: HostPort | null;
  readonly networks: NetworkDefaults;
  /** See ManagerProcessOptions. */
  readonly acceptsLogLoss: boolean;
  /** Options of the JSON API; not served when absent. */
  readonly json?: JsonOptions | null;
  /** Address of the web interface; not served when absent. */
  readonly ui?: HostPort | null;
  /** Storage plugins for the manager and the agent, in addition to those of their data dirs. */
  readonly csiPlugins: CsiSocketPaths;
  /** See ManagerProcessOptions. */
  readonly backups?: ScheduledBackups | null;
  /** Of the agent, in addition to those of its data dir. */
  readonly drivers?: DriverChoice;
  readonly telemetry: ProcessTelemetry;
  /** Called when the manager needs the unlock key to continue. */
  readonly onLocked?: (controlSocket: string) => void;
}

interface Up {
  readonly manager: ManagerProcess;
  /** Stops everything that was started, including the agent's tasks. */
  stop(): Promise<void>;
}

/** Rejects like `startManagerProcess`. */
export async function startUp(options: UpOptions, starting: Starting): Promise<Up> {
  const { dataDir, telemetry } = options;
  const manager = await startManagerProcess(
    { ...options, dataDir: join(dataDir, "manager"), nats: null, join: null },
    starting,
  );
  let agent: AgentProcess | null = null;
  const host = `unix://${manager.controlSocket}`;
  const stop = async (): Promise<void> => {
    forgetHost(host);
    await agent?.shutdown(true);
    await manager.stop();
  };
  try {
    if (options.withAgent)
      agent = await runAgent(
        {
          join: [manager.advertise],
          token: workerToken(manager),
          dataDir: join(dataDir, "agent"),
          hostname: hostname(),
          labels: {},
          // The lines of the log are the manager's: both are one process.
          recorder: telemetry.recorder === null ? null : new RecordingRing(telemetry.recorder.bytesMax),
          csiPlugins: options.csiPlugins,
          ...(options.drivers === undefined ? {} : { drivers: options.drivers }),
        },
        telemetry,
        starting.onBroken,
      );
    rememberHost(host);
    return { manager, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

export function workerToken({ manager }: ManagerProcess): string {
  for (const cluster of manager.replica.all("cluster")) {
    const token = cluster.rootCa?.joinTokens?.worker;
    if (token !== undefined && token !== "") return token;
  }
  throw new UserError("the cluster has no worker token: run muster token worker --rotate");
}
