/** `muster manager`. */
import { command, type Command, type Values } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { formatHostPort, type HostPort } from "../../processes/addresses.ts";
import type { ManagerInvitation } from "../../processes/manager-join.ts";
import { startManagerProcess } from "../../processes/manager-lives.ts";
import type { LeafNodes } from "../../processes/nodes-nats.ts";
import { natsFlags, sharedNatsOf } from "./nats-flags.ts";
import { runUntilEnd } from "../../processes/run-until-end.ts";
import { tokenFlags, tokenOf, type TokenValues } from "./token-flags.ts";
import { reloading } from "./reload.ts";
import { flagAddress, logFileOf, logLevelOf, recorderOf, serving, servingOf } from "./serving-flags.ts";
import { telemetryFor } from "../../processes/telemetry.ts";

/** NATS' own. */
const nodesNatsPort = 4222;
const leafNodesPort = 7422;
/** That of HTTPS, which most firewalls let pass. */
const nodesWssPort = 443;

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
  "listen-nodes-wss": {
    type: "string",
    value: "ADDR:PORT",
    help: "With --listen-nodes-nats: listen address for nodes that connect over WebSockets, --join wss://HOST:PORT (default: off)",
  },
  "listen-leaf-nodes": {
    type: "string",
    value: "ADDR:PORT",
    help: "With --listen-nodes-nats: listen address for leaf nodes of NATS, through which the nodes of their sites connect with --seal (default: off)",
  },
  "leaf-nodes-name": {
    type: "string",
    multiple: true,
    value: "NAME",
    help: "With --listen-leaf-nodes: another name or address by which leaf nodes reach this manager, for its certificate; its own are known",
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
      nodesWss: nodesWssOf(values),
      leafNodes: leafNodesOf(values),
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

/** Null without the flag. Throws UserError and UsageError. */
function nodesWssOf(values: Values<typeof flags>): HostPort | null {
  const { "listen-nodes-nats": nodes, "listen-nodes-wss": listen } = values;
  if (listen === undefined) return null;
  if (nodes === undefined)
    throw new UsageError("--listen-nodes-wss requires --listen-nodes-nats: the same nats-server listens at both");
  return flagAddress("listen-nodes-wss", listen, nodesWssPort);
}

/** Null without the flag. Throws UserError and UsageError. */
function leafNodesOf(values: Values<typeof flags>): LeafNodes | null {
  const { "leaf-nodes-name": names, "listen-leaf-nodes": listen, "listen-nodes-nats": nodes } = values;
  if (listen === undefined) {
    if (names !== undefined)
      throw new UsageError("--leaf-nodes-name requires --listen-leaf-nodes: it is for that port's certificate");
    return null;
  }
  if (nodes === undefined)
    throw new UsageError("--listen-leaf-nodes requires --listen-nodes-nats: the same nats-server listens at both");
  return { listen: flagAddress("listen-leaf-nodes", listen, leafNodesPort), names: names ?? [] };
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
