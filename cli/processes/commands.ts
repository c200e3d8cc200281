/** The commands that are processes themselves: they run until they are told to end, and then end what they started. */
import { hostname } from "node:os";
import { join } from "node:path";
import type { ProcessTelemetry } from "../../runtime/telemetry/telemetry.ts";
import { createTelemetry } from "../../runtime/telemetry/telemetry.ts";
import { runAgent } from "../agent-process.ts";
import { command, UsageError, type Command } from "../command.ts";
import { parseLabels } from "../values.ts";
import { formatHostPort, parseHostPort, type HostPort } from "./addresses.ts";
import { defaultDataDir } from "./data-dir.ts";
import { startManagerProcess } from "./manager.ts";
import { settled, untilSignal } from "./signals.ts";
import { startHello } from "./start.ts";
import { startUp, workerToken } from "./up.ts";

/** SwarmKit's port. */
const defaultPort = 2377;
const defaultListen = `0.0.0.0:${defaultPort}`;

const logging = { "log-level": { type: "string" } } as const;
const serving = {
  "data-dir": { type: "string" },
  listen: { type: "string" },
  advertise: { type: "string" },
  metrics: { type: "string" },
  ...logging,
} as const;

/** Logs go to standard error for a service, and to a file beside its data for a person at a terminal. */
function telemetryFor(service: string, level: string | undefined, logFile?: string): Promise<ProcessTelemetry> {
  return createTelemetry({
    service,
    level: level ?? process.env["MUSTER_LOG_LEVEL"] ?? "info",
    otlpEndpoint: process.env["OTEL_EXPORTER_OTLP_ENDPOINT"],
    ...(logFile === undefined ? {} : { logFile }),
  });
}

function address(text: string | undefined, otherwise: string | null): HostPort | null {
  const given = text ?? otherwise;
  return given === null ? null : parseHostPort(given, defaultPort);
}

/**
 * Runs until a signal or a failure inside; ends everything either way. A failure is thrown on, so that the exit status
 * is 1 and a supervisor starts the process again.
 */
async function runUntilEnd(
  telemetry: ProcessTelemetry,
  start: (onBroken: (error: unknown) => void) => Promise<{ stop(): Promise<void> }>,
): Promise<void> {
  const broken = settled<{ readonly error: unknown }>();
  const signal = untilSignal();
  const running = await start((error) => broken.resolve({ error }));
  const end = await Promise.race([signal.then(() => null), broken.promise]);
  if (end !== null) telemetry.log.error({ err: end.error }, "broken; ending");
  await running.stop();
  await telemetry.shutdown();
  if (end !== null) throw end.error;
}

export const manager: Command = command({
  summary: "Runs one manager; without --nats with a nats-server of its own under the data dir.",
  options: { ...serving, nats: { type: "string" } },
  run: async ({ values }) => {
    if (values["data-dir"] === undefined)
      throw new UsageError("--data-dir is missing: where the manager keeps its state");
    const telemetry = await telemetryFor("muster-manager", values["log-level"]);
    const options = {
      dataDir: values["data-dir"],
      listen: address(values.listen, defaultListen) as HostPort,
      advertise: advertised(values.advertise, values.listen),
      nats: values.nats ?? null,
      metrics: address(values.metrics, null),
      telemetry,
    };
    await runUntilEnd(telemetry, (onBroken) => startManagerProcess(options, onBroken));
  },
});

/** An advertised address without a port has the port that is listened on. */
function advertised(advertise: string | undefined, listen: string | undefined): HostPort | null {
  if (advertise === undefined) return null;
  return parseHostPort(advertise, parseHostPort(listen ?? defaultListen, defaultPort).port);
}

export const agent: Command = command({
  summary: "Runs one node: joins the cluster and runs the tasks that it is given.",
  options: {
    join: { type: "string" },
    token: { type: "string" },
    "data-dir": { type: "string" },
    hostname: { type: "string" },
    label: { type: "string", multiple: true },
    ...logging,
  },
  run: async ({ values }) => {
    const dataDir = values["data-dir"];
    if (dataDir === undefined)
      throw new UsageError("--data-dir is missing: where the agent keeps its identity and tasks");
    const telemetry = await telemetryFor("muster-agent", values["log-level"]);
    await runUntilEnd(telemetry, async (onBroken) => {
      const process_ = await runAgent(
        {
          join: values.join ?? "",
          token: values.token ?? "",
          dataDir,
          hostname: values.hostname ?? hostname(),
          labels: parseLabels(values.label ?? []),
        },
        telemetry,
        onBroken,
      );
      // A node that cannot join says so and ends; one that lost its managers goes on looking for them.
      await process_.joined();
      // Its tasks stay: the next agent on this data dir finds them again.
      return { stop: () => process_.shutdown(false) };
    });
  },
});

export const up: Command = command({
  summary: "Runs a cluster on this machine: NATS, one manager and one agent.",
  options: { ...serving, "no-agent": { type: "boolean" } },
  run: async ({ values, shell }) => {
    const dataDir = values["data-dir"] ?? defaultDataDir();
    const telemetry = await telemetryFor("muster", values["log-level"], join(dataDir, "muster.log"));
    await runUntilEnd(telemetry, async (onBroken) => {
      const running = await startUp(
        {
          dataDir,
          listen: address(values.listen, defaultListen) as HostPort,
          advertise: advertised(values.advertise, values.listen),
          withAgent: values["no-agent"] !== true,
          metrics: address(values.metrics, null),
          telemetry,
        },
        onBroken,
      );
      for (const warning of running.manager.warnings) shell.remark(`note: ${warning}`);
      shell.print(`Manager:        ${running.manager.advertise}`);
      shell.print(`Control socket: ${running.manager.controlSocket}`);
      shell.print(`Log:            ${join(dataDir, "muster.log")}`);
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
  options: { ...serving, once: { type: "boolean" }, port: { type: "string" } },
  run: async ({ values, shell }) => {
    const dataDir = values["data-dir"] ?? defaultDataDir();
    const telemetry = await telemetryFor("muster", values["log-level"], join(dataDir, "muster.log"));
    const listen = address(values.listen, defaultListen) as HostPort;
    const work = async (onBroken: (error: unknown) => void): Promise<{ stop(): Promise<void> }> => {
      const running = await startUp(
        {
          dataDir,
          listen,
          advertise: advertised(values.advertise, values.listen),
          withAgent: true,
          metrics: address(values.metrics, null),
          telemetry,
        },
        onBroken,
      );
      try {
        const host = `unix://${running.manager.controlSocket}`;
        await startHello(shell.at(host), values.port === undefined ? null : Number(values.port));
        shell.print(
          `\nTo add a Docker Engine, run on its machine:\n  docker swarm join --token ${workerToken(running.manager)} ${running.manager.advertise}`,
        );
        return running;
      } catch (error) {
        await running.stop();
        throw error;
      }
    };
    if (values.once !== true) {
      await runUntilEnd(telemetry, async (onBroken) => {
        const running = await work(onBroken);
        shell.print(`\nThe manager listens on ${formatHostPort(listen)}. Press Ctrl-C to stop everything.`);
        return running;
      });
      return;
    }
    const broken = settled<unknown>();
    const running = await Promise.race([
      work((error) => broken.resolve(error)),
      broken.promise.then((error) => {
        throw error;
      }),
      untilSignal().then((signal) => {
        throw new Error(`ended by ${signal}`);
      }),
    ]);
    await running.stop();
    await telemetry.shutdown();
  },
});
