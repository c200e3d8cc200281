/** The commands that are processes themselves: they run until they are told to end, and then end what they started. */
import { hostname } from "node:os";
import { join } from "node:path";
import { parseAddress } from "../../machines/ip-address.ts";
import type { ProcessTelemetry } from "../../runtime/telemetry/telemetry.ts";
import { createTelemetry } from "../../runtime/telemetry/telemetry.ts";
import {
  networkDefaults,
  networkDefaultsProblem,
  type NetworkDefaults,
} from "../../machines/allocation/network-defaults.ts";
import { runAgent } from "../agent-process.ts";
import { command, UsageError, type Command } from "../command.ts";
import type { Shell } from "../shell.ts";
import { UserError } from "../user-error.ts";
import { parseLabels } from "../values.ts";
import { formatHostPort, parseHostPort, type HostPort } from "./addresses.ts";
import { csiSocketPaths } from "./csi.ts";
import { cannotWrite, defaultDataDir } from "./data-dir.ts";
import { driverChoice, driverFlags } from "./drivers.ts";
import { startManagerProcess } from "./manager.ts";
import type { JsonOptions } from "./json-api.ts";
import type { ManagerInvitation } from "./manager-join.ts";
import { serveMetrics } from "./metrics-server.ts";
import { Interrupted, settled, untilSignal, type Starting } from "./signals.ts";
import { startHello } from "./start.ts";
import { startUp, workerToken } from "./up.ts";

/** SwarmKit's port. */
const defaultPort = 2377;
const defaultListen = `0.0.0.0:${defaultPort}`;

const logFile = "muster.log";
const logging = {
  "log-level": { type: "string", value: "LEVEL", help: "trace, debug, info, warn, error or fatal (info)" },
} as const;
const metricsFlag = {
  type: "string",
  value: "ADDR:PORT",
  help: "serves /metrics and /healthz there (nowhere)",
} as const;
const csiFlag = {
  type: "string",
  multiple: true,
  value: "NAME=unix:///PATH",
  help: "a CSI plugin by the socket on which it answers",
} as const;
const serving = {
  "data-dir": {
    type: "string",
    value: "DIR",
    help: "where it keeps its state; up and start have a place of their own",
  },
  listen: { type: "string", value: "ADDR:PORT", help: "where nodes reach it (0.0.0.0:2377)" },
  advertise: { type: "string", value: "ADDR[:PORT]", help: "the address that nodes are told (found out)" },
  metrics: metricsFlag,
  "default-addr-pool": {
    type: "string",
    multiple: true,
    value: "CIDR",
    help: "where subnets of networks are taken from, when the cluster is founded (10.0.0.0/8)",
  },
  "default-addr-pool-mask-length": { type: "string", value: "BITS", help: "how large these subnets are (24)" },
  "data-path-port": { type: "string", value: "PORT", help: "UDP port of the engines' VXLAN traffic (4789)" },
  "csi-plugin": csiFlag,
  "json-listen": {
    type: "string",
    value: "ADDR[:PORT]",
    help: "serves the JSON API there, by default on port 17070 (nowhere)",
  },
  "json-redirect": { type: "string", value: "ADDR:PORT", help: "sends logins at the JSON API on to that manager" },
  ...logging,
} as const;

/** Throws UsageError. */
function dataPathOf(address: string | undefined): { readonly dataPathAddress?: string } {
  if (address === undefined) return {};
  if (parseAddress(address) === null) throw new UsageError(`--data-path-addr ${address} is no address`);
  return { dataPathAddress: address };
}

function dataplaneOf(values: {
  readonly "dataplane-driver"?: string | undefined;
  readonly "dataplane-protocol"?: string | undefined;
}): { readonly dataplane?: { readonly path: string; readonly generation: "2016" | "current" } } {
  const { "dataplane-driver": path, "dataplane-protocol": generation = "current" } = values;
  if (generation !== "current" && generation !== "2016")
    throw new UsageError(`--dataplane-protocol takes current or 2016, not '${generation}'`);
  return path === undefined ? {} : { dataplane: { path, generation } };
}

/** Juju's port. */
const defaultJsonPort = 17_070;

function jsonOf(values: {
  readonly "json-listen"?: string | undefined;
  readonly "json-redirect"?: string | undefined;
}): JsonOptions | null {
  const { "json-listen": listen, "json-redirect": redirect } = values;
  if (listen === undefined) {
    if (redirect !== undefined) throw new UsageError("--json-redirect needs --json-listen");
    return null;
  }
  return {
    listen: parseHostPort(listen, defaultJsonPort),
    redirect: redirect === undefined ? null : parseHostPort(redirect, defaultJsonPort),
  };
}

function tellLocked(shell: Shell): (controlSocket: string) => void {
  return (controlSocket) =>
    shell.remark(
      `The manager is locked: its keys are encrypted. It goes on when it gets the unlock key:\n  muster swarm unlock --host unix://${controlSocket}`,
    );
}

/** By the flags of `docker swarm init`. They count when a cluster is founded; throws UsageError. */
function networksOf(values: {
  readonly "default-addr-pool"?: readonly string[] | undefined;
  readonly "default-addr-pool-mask-length"?: string | undefined;
  readonly "data-path-port"?: string | undefined;
}): NetworkDefaults {
  const { addressPools, subnetLength, dataPathPort } = networkDefaults;
  const number = (text: string | undefined, otherwise: number): number =>
    text === undefined ? otherwise : /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  const chosen: NetworkDefaults = {
    addressPools: values["default-addr-pool"] ?? addressPools,
    subnetLength: number(values["default-addr-pool-mask-length"], subnetLength),
    dataPathPort: number(values["data-path-port"], dataPathPort),
  };
  const problem = networkDefaultsProblem(chosen);
  if (problem !== null) throw new UsageError(problem);
  return chosen;
}

/** Logs go to standard error for a service, and to a file beside its data for a person at a terminal. Throws UserError. */
async function telemetryFor(
  service: string,
  level: string | undefined,
  logDir: string | null = null,
): Promise<ProcessTelemetry> {
  try {
    return await createTelemetry({
      service,
      level: level ?? process.env["MUSTER_LOG_LEVEL"] ?? "info",
      otlpEndpoint: process.env["OTEL_EXPORTER_OTLP_ENDPOINT"],
      ...(logDir === null ? {} : { logFile: join(logDir, logFile) }),
    });
  } catch (error) {
    if (logDir !== null && (error as NodeJS.ErrnoException).syscall !== undefined) throw cannotWrite(logDir, error);
    throw error;
  }
}

function address(text: string | undefined, otherwise: string | null): HostPort | null {
  const given = text ?? otherwise;
  return given === null ? null : parseHostPort(given, defaultPort);
}

/** How a process comes to its end. */
type End =
  | { readonly kind: "signal"; readonly signal: NodeJS.Signals }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "done" };

/** What a process does that only ends when it is told to. */
const staying = new Promise<never>(() => {});

/**
 * Starts, does `work`, and ends everything when that is done, at a signal or at a failure inside, whichever comes first:
 * so a signal is heeded while either still waits for something. A failure is thrown on, so that the exit status is 1 and
 * a supervisor starts the process again.
 */
async function runUntilEnd<Running extends { stop(): Promise<void> }>(
  telemetry: ProcessTelemetry,
  start: (starting: Starting) => Promise<Running>,
  work: (running: Running) => Promise<void> = () => staying,
): Promise<"signal" | "done"> {
  const broken = settled<End>();
  const signal = untilSignal();
  const controller = new AbortController();
  void signal.then(() => controller.abort());
  const onBroken = (error: unknown): void => broken.resolve({ kind: "failed", error });
  let running: Running;
  try {
    running = await start({ onBroken, ending: controller.signal });
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    telemetry.log.info({ signal: await signal }, "ended before it had started");
    await telemetry.shutdown();
    return "signal";
  }
  const end = await Promise.race<End>([
    signal.then((name) => ({ kind: "signal", signal: name })),
    broken.promise,
    work(running).then(
      () => ({ kind: "done" }),
      (error: unknown) => ({ kind: "failed", error }),
    ),
  ]);
  // What is the user's to mend is told in one sentence, by whoever called.
  if (end.kind === "failed" && !(end.error instanceof UserError))
    telemetry.log.error({ err: end.error }, "broken; ending");
  if (end.kind === "signal") telemetry.log.info({ signal: end.signal }, "ending");
  await running.stop();
  await telemetry.shutdown();
  if (end.kind === "failed") throw end.error;
  return end.kind;
}

export const manager: Command = command({
  summary: "Runs one manager; without --nats with a nats-server of its own under the data dir.",
  options: {
    ...serving,
    nats: { type: "string", value: "URL", help: "a NATS that is there; several managers share one" },
    join: { type: "string", value: "ADDR:PORT", help: "a manager of the cluster that this one is to join" },
    token: { type: "string", value: "TOKEN", help: "the token with which managers join: 'muster token manager'" },
  },
  run: async ({ values }) => {
    if (values["data-dir"] === undefined)
      throw new UsageError("--data-dir is missing: where the manager keeps its state");
    const telemetry = await telemetryFor("muster-manager", values["log-level"]);
    const options = {
      dataDir: values["data-dir"],
      listen: address(values.listen, defaultListen) as HostPort,
      advertise: advertised(values.advertise, values.listen),
      nats: values.nats ?? null,
      join: invitation(values),
      metrics: address(values.metrics, null),
      networks: networksOf(values),
      csiPlugins: csiSocketPaths(values["csi-plugin"] ?? []),
      json: jsonOf(values),
      telemetry,
    };
    await runUntilEnd(telemetry, (starting) => startManagerProcess(options, starting));
  },
});

/** Throws UsageError unless both or neither are given. */
function invitation(values: {
  readonly join?: string | undefined;
  readonly token?: string | undefined;
}): ManagerInvitation | null {
  const { join: address, token } = values;
  if (address === undefined && token === undefined) return null;
  if (address === undefined || token === undefined) throw new UsageError("--join and --token belong together");
  return { address: formatHostPort(parseHostPort(address, defaultPort)), token };
}

/** An advertised address without a port has the port that is listened on. */
function advertised(advertise: string | undefined, listen: string | undefined): HostPort | null {
  if (advertise === undefined) return null;
  return parseHostPort(advertise, parseHostPort(listen ?? defaultListen, defaultPort).port);
}

export const agent: Command = command({
  summary: "Runs one node: joins the cluster and runs the tasks that it is given.",
  options: {
    join: { type: "string", value: "ADDR:PORT", help: "any manager; needed once, then it knows them" },
    token: { type: "string", value: "TOKEN", help: "the token with which workers join: 'muster token worker'" },
    "data-dir": { type: "string", value: "DIR", help: "where it keeps its identity and its tasks; always needed" },
    hostname: { type: "string", value: "NAME", help: "what the cluster calls it (this machine's name)" },
    "data-path-addr": {
      type: "string",
      value: "ADDR",
      help: "where other nodes' packets for its tasks reach it (where managers see it)",
    },
    label: { type: "string", multiple: true, value: "KEY=VALUE", help: "label of the engine, for constraints" },
    "csi-plugin": csiFlag,
    ...driverFlags,
    "dataplane-driver": {
      type: "string",
      value: "PATH",
      help: "what programs this node's network by policies: a driver of Felix's protocol (none)",
      completes: "file",
    },
    "dataplane-protocol": {
      type: "string",
      value: "GENERATION",
      help: "what the driver speaks: current, or 2016 for one of Felix 2.0 (current)",
      completes: ["current", "2016"],
    },
    metrics: metricsFlag,
    ...logging,
  },
  run: async ({ values }) => {
    const dataDir = values["data-dir"];
    if (dataDir === undefined)
      throw new UsageError("--data-dir is missing: where the agent keeps its identity and tasks");
    const telemetry = await telemetryFor("muster-agent", values["log-level"]);
    const options = {
      join: values.join ?? "",
      token: values.token ?? "",
      dataDir,
      hostname: values.hostname ?? hostname(),
      ...dataPathOf(values["data-path-addr"]),
      labels: parseLabels(values.label ?? []),
      csiPlugins: csiSocketPaths(values["csi-plugin"] ?? []),
      drivers: await driverChoice(values),
      ...dataplaneOf(values),
    };
    const metrics = address(values.metrics, null);
    await runUntilEnd(
      telemetry,
      async ({ onBroken }) => {
        const agent = await runAgent(options, telemetry, onBroken);
        // Its tasks stay: the next agent on this data dir finds them again.
        const stop = (): Promise<void> => agent.shutdown(false);
        if (metrics === null) return { agent, stop };
        try {
          const server = await serveMetrics(metrics, telemetry.metrics, () => agent.state().kind === "serving");
          return { agent, stop: () => stop().finally(() => server.close()) };
        } catch (error) {
          await stop();
          throw error;
        }
      },
      async (running) => {
        // A node that cannot join says so and ends; one that lost its managers goes on looking for them.
        await running.agent.joined();
        await staying;
      },
    );
  },
});

export const up: Command = command({
  summary: "Runs a cluster on this machine: NATS, one manager and one agent.",
  options: {
    ...serving,
    ...driverFlags,
    "no-agent": { type: "boolean", help: "no node for process tasks on this machine" },
  },
  run: async ({ values, shell }) => {
    const dataDir = values["data-dir"] ?? defaultDataDir();
    const drivers = await driverChoice(values);
    const telemetry = await telemetryFor("muster", values["log-level"], dataDir);
    await runUntilEnd(telemetry, async (starting) => {
      const running = await startUp(
        {
          dataDir,
          listen: address(values.listen, defaultListen) as HostPort,
          advertise: advertised(values.advertise, values.listen),
          onLocked: tellLocked(shell),
          withAgent: values["no-agent"] !== true,
          metrics: address(values.metrics, null),
          networks: networksOf(values),
          csiPlugins: csiSocketPaths(values["csi-plugin"] ?? []),
          json: jsonOf(values),
          drivers,
          telemetry,
        },
        starting,
      );
      for (const warning of running.manager.warnings) shell.remark(`note: ${warning}`);
      shell.print(`Manager:        ${running.manager.advertise}`);
      shell.print(`Control socket: ${running.manager.controlSocket}`);
      shell.print(`Log:            ${join(dataDir, logFile)}`);
      shell.print(
        `Join an engine: docker swarm join --token ${workerToken(running.manager)} ${running.manager.advertise}`,
      );
      return running;
    });
  },
});

/** What `npm start` runs. */
export const start: Command = command({
  summary: "Runs a cluster on this machine with the sample service hello; --once ends when that has answered.",
  options: {
    ...serving,
    once: { type: "boolean", help: "ends everything when the sample service has answered" },
    port: { type: "string", value: "PORT", help: "where the sample service answers (a free one)" },
  },
  run: async ({ values, shell }) => {
    const dataDir = values["data-dir"] ?? defaultDataDir();
    const port = values.port === undefined ? null : Number(values.port);
    if (port !== null && !(Number.isInteger(port) && port >= 1 && port <= 65_535))
      throw new UsageError(`--port takes a number from 1 to 65535, not '${values.port}'`);
    const telemetry = await telemetryFor("muster", values["log-level"], dataDir);
    const listen = address(values.listen, defaultListen) as HostPort;
    const options = {
      dataDir,
      listen,
      advertise: advertised(values.advertise, values.listen),
      withAgent: true,
      onLocked: tellLocked(shell),
      metrics: address(values.metrics, null),
      networks: networksOf(values),
      csiPlugins: csiSocketPaths(values["csi-plugin"] ?? []),
      json: jsonOf(values),
      telemetry,
    };
    const end = await runUntilEnd(
      telemetry,
      (starting) => startUp(options, starting),
      async ({ manager }) => {
        const host = `unix://${manager.controlSocket}`;
        await startHello(shell.at(host), port);
        const joinLine = `docker swarm join --token ${workerToken(manager)} ${manager.advertise}`;
        shell.print(`\nTo add a Docker Engine, run on its machine:\n  ${joinLine}`);
        if (values.once === true) return;
        shell.print(`\nThe manager listens on ${formatHostPort(listen)}. Press Ctrl-C to stop everything.`);
        await staying;
      },
    );
    if (values.once === true && end === "signal")
      throw new UserError("interrupted before the sample service had answered; everything is stopped");
  },
});
