/** `muster up` and `muster start`: a cluster on this machine that lives as long as the process. */
import { join } from "node:path";
import { command, type Command, type Values } from "../command.ts";
import type { Shell } from "../shell.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { formatHostPort } from "../../processes/addresses.ts";
import { humanDuration } from "../../lib/human-duration.ts";
import { defaultDataDir } from "../../processes/data-dir.ts";
import { driverChoice, driverFlags } from "./driver-flags.ts";
import { runUntilEnd, staying } from "../../processes/run-until-end.ts";
import { reloading } from "./reload.ts";
import { logFileOf, logLevelOf, recorderOf, serving, servingOf } from "./serving-flags.ts";
import { telemetryFor } from "../../processes/telemetry.ts";
import { lastWriteMs, putAside } from "../../processes/earlier-state.ts";
import { startHello } from "./sample.ts";
import { startUp, workerToken } from "../../processes/up.ts";

/**
 * Describes the location of the state, and whether an earlier cluster's was found; with `fresh` that one is moved aside first.
 * Print it after a successful start: a failed one prints only the reason. Throws UserError.
 */
function stateSentence(shell: Shell, dataDir: string, fresh: boolean | undefined): string {
  if (fresh === true) {
    const aside = putAside(dataDir, shell.now());
    if (aside !== null)
      shell.remark(`The earlier cluster's state was moved to ${aside}: remove it when you no longer need it.`);
  }
  const since = lastWriteMs(dataDir);
  if (since === null) return `${dataDir} (new)`;
  const age = humanDuration(shell.now() - since).toLowerCase();
  return `${dataDir}, found: continuing the cluster that last ran ${age} ago (--fresh starts a new one)`;
}

const fresh = {
  type: "boolean",
  help: "Start a new cluster; the state of an earlier one in the data dir is moved aside",
  onlyOnce: true,
} as const;

/** The user who starts the sample cluster. */
const ownUser = String(process.getuid?.() ?? 0);

function announceLocked(shell: Shell): (controlSocket: string) => void {
  return (controlSocket) =>
    shell.remark(
      `The manager is locked: its keys are encrypted. To continue, enter the unlock key:\n  muster swarm unlock --host unix://${controlSocket}`,
    );
}

function placesOf(values: { readonly "data-dir"?: string | undefined; readonly "log-file"?: string | undefined }) {
  const dataDir = values["data-dir"] ?? defaultDataDir();
  const chosen = logFileOf(values) ?? null;
  return { dataDir, log: chosen === null ? { dataDir, logFile: join(dataDir, "muster.log") } : { logFile: chosen } };
}

const upFlags = {
  ...serving,
  ...driverFlags,
  fresh,
  "no-agent": { type: "boolean", help: "Do not start an agent on this machine" },
} as const;

/** Checks the values of all flags. Rejects with UsageError and UserError. */
async function upSettings(values: Values<typeof upFlags>) {
  return {
    ...placesOf(values),
    drivers: await driverChoice(values),
    flags: await servingOf(values),
    logLevel: logLevelOf(values),
    recorder: recorderOf(values),
  };
}

export const up: Command = command({
  summary: "Run a cluster on this machine: NATS, one manager and one agent.",
  options: upFlags,
  checkSettings: upSettings,
  run: async ({ values, shell, reread }) => {
    const { dataDir, drivers, flags, log, logLevel, recorder } = await upSettings(values);
    const state = stateSentence(shell, dataDir, values.fresh);
    const telemetry = await telemetryFor("muster", logLevel, { ...log, recorder });
    await runUntilEnd(reloading(telemetry, reread), async (starting) => {
      const running = await startUp(
        {
          dataDir,
          ...flags,
          onLocked: announceLocked(shell),
          withAgent: values["no-agent"] !== true,
          drivers,
          telemetry,
        },
        starting,
      );
      for (const warning of running.manager.warnings) shell.remark(`note: ${warning}`);
      shell.print(`Manager:        ${running.manager.advertise}`);
      shell.print(`Control socket: ${running.manager.controlSocket}`);
      if (flags.ui !== null) shell.print(`Web interface:  https://${formatHostPort(flags.ui)}/`);
      shell.print(`State:          ${state}`);
      shell.print(`Log:            ${log.logFile}`);
      shell.print(
        `Join an engine: docker swarm join --token ${workerToken(running.manager)} ${running.manager.advertise}`,
      );
      return running;
    });
  },
});

const startFlags = {
  ...serving,
  fresh,
  once: {
    type: "boolean",
    help: "Exit as soon as every task of the sample service has answered",
    onlyOnce: true,
  },
  port: { type: "string", value: "PORT", help: "Port of the sample service (default: a free port)" },
} as const;

/** Checks the values of all flags. Rejects with UsageError and UserError. */
async function startSettings(values: Values<typeof startFlags>) {
  const port = values.port === undefined ? null : Number(values.port);
  if (port !== null && !(Number.isInteger(port) && port >= 1 && port <= 65_535))
    throw new UsageError(`invalid argument "${values.port}" for "--port" flag: expected a number from 1 to 65535`);
  return {
    ...placesOf(values),
    port,
    flags: await servingOf(values),
    logLevel: logLevelOf(values),
    recorder: recorderOf(values),
  };
}

/** The command that `npm start` runs. */
export const start: Command = command({
  summary: "Run a cluster on this machine with the sample service hello; --once exits when the service has answered.",
  options: startFlags,
  checkSettings: startSettings,
  run: async ({ values, shell, reread }) => {
    const { dataDir, flags, log, logLevel, port, recorder } = await startSettings(values);
    const state = stateSentence(shell, dataDir, values.fresh);
    const telemetry = await telemetryFor("muster", logLevel, { ...log, recorder });
    const options = {
      dataDir,
      ...flags,
      withAgent: true,
      // The sample service runs this program, which other users may be unable to read.
      drivers: await driverChoice({ "task-user": ownUser, "allow-root": true }),
      onLocked: announceLocked(shell),
      telemetry,
    };
    const end = await runUntilEnd(
      reloading(telemetry, reread),
      (starting) => startUp(options, starting),
      async ({ manager }) => {
        shell.remark(`State: ${state}`);
        const host = `unix://${manager.controlSocket}`;
        await startHello(shell.at(host), port);
        const joinLine = `docker swarm join --token ${workerToken(manager)} ${manager.advertise}`;
        shell.print(`\nTo add a Docker Engine, run on its machine:\n  ${joinLine}`);
        if (values.once === true) return;
        shell.print(`\nThe manager listens on ${formatHostPort(options.listen)}. Press Ctrl-C to stop everything.`);
        await staying;
      },
    );
    if (values.once === true && end === "signal")
      throw new UserError("interrupted before the sample service answered; everything is stopped");
  },
});
