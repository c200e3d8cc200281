/** `muster manager`. */
import { command, type Command, type Values } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { formatHostPort, type HostPort } from "../../processes/addresses.ts";
import type { ManagerInvitation } from "../../processes/manager-join.ts";
import { startManagerProcess } from "../../processes/manager-lives.ts";
import { natsFlags, sharedNatsOf } from "./nats-flags.ts";
import { runUntilEnd } from "../../processes/run-until-end.ts";
import { tokenFlags, tokenOf, type TokenValues } from "./token-flags.ts";
import { reloading } from "./reload.ts";
import { flagAddress, logFileOf, logLevelOf, recorderOf, serving, servingOf } from "./serving-flags.ts";
import { telemetryFor } from "../../processes/telemetry.ts";

/** NATS' own. */
const nodesNatsPort = 4222;

const flags = {
  ...serving,
  ...natsFlags,
  join: { type: "string", value: "ADDR:PORT", help: "Address of a manager of the cluster to join" },
  ...tokenFlags("manager"),
  "listen-nodes-nats": {
    type: "string",
    value: "ADDR:PORT",
    help: "Listen address for nodes that connect over NATS, served by another nats-server of this manager (default: off)",
  },
  "force-new-cluster": {
    type: "boolean",
    help: "Continue alone from this manager's copy of the log, after the machines with the other copies are lost for good; changes that this copy lacks are lost",
  },
} as const;

/** Checks the values of all flags. Rejects with UsageError and UserError. */
async function settingsOf(values: Values<typeof flags>) {
  if (values["data-dir"] === undefined)
    throw new UsageError("--data-dir is required: the manager keeps its state there");
  return {
    logFile: logFileOf(values),
    logLevel: logLevelOf(values),
    recorder: recorderOf(values),
    options: {
      dataDir: values["data-dir"],
      ...(await servingOf(values)),
      nats: sharedNatsOf(values),
      join: invitation(values),
      forcesNewCluster: forcing(values),
      nodesNats: nodesNatsOf(values["listen-nodes-nats"]),
    },
  };
}

export const manager: Command = command({
  summary: "Run one manager; without --nats the managers of a cluster run their own nats-servers.",
  options: flags,
  checkSettings: settingsOf,
  run: async ({ values, reread }) => {
    const { logFile, logLevel, options, recorder } = await settingsOf(values);
    const telemetry = await telemetryFor("muster-manager", logLevel, { logFile, recorder });
    await runUntilEnd(reloading(telemetry, reread), (starting) =>
      startManagerProcess({ ...options, telemetry }, starting),
    );
  },
});

/** Null without the flag. Throws UserError. */
function nodesNatsOf(text: string | undefined): HostPort | null {
  return text === undefined ? null : flagAddress("listen-nodes-nats", text, nodesNatsPort);
}

/** Throws UsageError for a manager that does not have a copy of the log by itself. */
function forcing(values: Values<typeof flags>): boolean {
  if (values["force-new-cluster"] !== true) return false;
  if (sharedNatsOf(values) !== null)
    throw new UsageError("--force-new-cluster is for managers with nats-servers of their own: it excludes --nats");
  if (values.join !== undefined)
    throw new UsageError("--force-new-cluster continues a cluster without the others: it excludes --join");
  return true;
}

/** Throws UsageError unless both or neither are set. */
function invitation(values: TokenValues & { readonly join?: string | undefined }): ManagerInvitation | null {
  const { join: address } = values;
  const token = tokenOf(values);
  if (address === undefined && token === undefined) return null;
  if (address === undefined || token === undefined)
    throw new UsageError("--join and a token (--token or --token-file) must be set together");
  return { address: formatHostPort(flagAddress("join", address)), token };
}
