/** `muster agent`. */
import { hostname } from "node:os";
import { generations, type Generation } from "../../machines/dataplane/generation.ts";
import { siteLabel } from "../../machines/node.ts";
import { parseAddress } from "../../lib/ip-address.ts";
import { runAgent } from "../../processes/agent.ts";
import { command, type Command, type Values } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { parseLabels } from "../values.ts";
import { csiSocketPaths, csiFlag } from "./csi-flag.ts";
import { offeredResources } from "./generic-resources.ts";
import { driverChoice, driverFlags } from "./driver-flags.ts";
import { serveMetrics } from "../../processes/metrics-server.ts";
import { isNatsUrl } from "../../processes/nats-dialer.ts";
import { parseNodeAddress } from "../../runtime/nats/address.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { formatHostPort } from "../../processes/addresses.ts";
import { runUntilEnd, staying } from "../../processes/run-until-end.ts";
import { sealFlags, sealOf } from "./seal-flags.ts";
import { tokenFlags, tokenOf } from "./token-flags.ts";
import { reloading } from "./reload.ts";
import {
  flagAddress,
  logFileFlag,
  logFileOf,
  logging,
  logLevelOf,
  metricsFlag,
  metricsOf,
  recorderFlag,
  recorderOf,
} from "./serving-flags.ts";
import { telemetryFor } from "../../processes/telemetry.ts";

const flags = {
  join: {
    type: "string",
    multiple: true,
    value: "ADDR:PORT|nats://HOST:PORT",
    help: "Address of any manager; needed only for the first start. With nats://, tls:// or wss:// the node reaches managers only over NATS, at these URLs: repeat the flag or separate with commas, one for each manager with --listen-nodes-nats (wss: --listen-nodes-wss); with --seal, servers of the site's own NATS",
  },
  ...tokenFlags("worker"),
  "data-dir": { type: "string", value: "DIR", help: "Directory for the node's identity and tasks (required)" },
  hostname: { type: "string", value: "NAME", help: "Hostname of the node (default: this machine's)" },
  "data-path-addr": {
    type: "string",
    value: "ADDR",
    help: "Address for data path traffic from other nodes (default: the address that managers see)",
  },
  label: { type: "string", multiple: true, value: "KEY=VALUE", help: "Engine label, for constraints" },
  site: {
    type: "string",
    value: "NAME",
    help: "Name of the node's site: node.site in constraints and preferences (default: none)",
  },
  ...sealFlags,
  "node-generic-resource": {
    type: "string",
    multiple: true,
    value: "KIND=COUNT|KIND=NAME",
    help: "User-defined resource of the node, such as ssd=3, or gpu=UUID1 and gpu=UUID2",
  },
  "csi-plugin": csiFlag,
  ...driverFlags,
  "dataplane-driver": {
    type: "string",
    value: "PATH",
    help: "Executable of a dataplane driver, speaking Felix's protocol, that enforces network policies on this node (default: none)",
    completes: "file",
  },
  "dataplane-protocol": {
    type: "string",
    value: "GENERATION",
    help: "Protocol generation of the dataplane driver: 2016 (Felix 2.0), current (up to 3.31) or 3.32 (and newer) (default current)",
    completes: [...generations],
  },
  metrics: metricsFlag,
  ...logging,
  ...logFileFlag,
  ...recorderFlag,
} as const;

function labelsOf({ label, site }: Values<typeof flags>): Readonly<Record<string, string>> {
  const labels = parseLabels(label ?? []);
  if (site === undefined) return labels;
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/.test(site))
    throw new UsageError(
      `invalid argument "${site}" for "--site" flag: expected up to 63 letters, digits, '_', '.' and '-'`,
    );
  return { ...labels, [siteLabel]: site };
}

/** Checks the values of all flags. Rejects with UsageError and UserError. */
async function settingsOf(values: Values<typeof flags>) {
  const dataDir = values["data-dir"];
  if (dataDir === undefined)
    throw new UsageError("--data-dir is required: the agent keeps its identity and tasks there");
  const recorder = recorderOf(values);
  const join = placesOf(values.join ?? [], values.seal === true);
  return {
    logFile: logFileOf(values),
    logLevel: logLevelOf(values),
    recorder,
    metrics: metricsOf(values),
    options: {
      join,
      seal: sealOf(values, join),
      token: tokenOf(values) ?? "",
      dataDir,
      hostname: values.hostname ?? hostname(),
      ...dataPathOf(values["data-path-addr"]),
      labels: labelsOf(values),
      genericResources: offeredResources(values["node-generic-resource"] ?? []),
      csiPlugins: csiSocketPaths(values["csi-plugin"] ?? []),
      drivers: await driverChoice(values),
      ...dataplaneOf(values),
      recorder,
    },
  };
}

export const agent: Command = command({
  summary: "Run one node: join the cluster and run the tasks assigned to it.",
  options: flags,
  checkSettings: settingsOf,
  run: async ({ values, reread }) => {
    const { logFile, logLevel, metrics, options, recorder } = await settingsOf(values);
    const telemetry = await telemetryFor("muster-agent", logLevel, { logFile, recorder });
    await runUntilEnd(
      reloading(telemetry, reread),
      async ({ onBroken }) => {
        const agent = await runAgent(options, telemetry, onBroken);
        // The tasks keep running: the next agent on this data dir adopts them.
        const stop = (): Promise<void> => agent.shutdown(false);
        const ready = (): Promise<void> => agent.ready();
        if (metrics === null) return { agent, ready, stop };
        try {
          const server = await serveMetrics(metrics, telemetry.metrics, () =>
            agent.state().kind === "serving" ? null : "the agent has no session with a manager",
          );
          return { agent, ready, stop: () => stop().finally(() => server.close()) };
        } catch (error) {
          await stop();
          throw error;
        }
      },
      async (running) => {
        // Fail if the node cannot join; once joined, it reconnects to managers forever.
        await running.agent.joined();
        await staying;
      },
    );
  },
});

/** Throws UsageError and UserError. */
function placesOf(given: readonly string[], isSealed: boolean): readonly string[] {
  const places = given.flatMap((each) => each.split(",")).map((each) => each.trim());
  if (places.some(isNatsUrl)) {
    for (const place of places) checkNatsUrl(place, isSealed);
    return places;
  }
  if (places.length > 1) throw new UsageError("--join accepts several addresses only if all of them are URLs of NATS");
  return places.map((place) => formatHostPort(flagAddress("join", place)));
}

/** Throws UsageError. */
function checkNatsUrl(text: string, isSealed: boolean): void {
  try {
    const { user, token } = parseNodeAddress(text);
    if (isNatsUrl(text) && ((user === undefined && token === undefined) || isSealed)) return;
  } catch (error) {
    if (!(error instanceof NatsProblem)) throw error;
  }
  throw new UsageError(
    `invalid argument "${text}" for "--join" flag: expected nats://HOST:PORT, tls://HOST:PORT or wss://HOST:PORT`,
  );
}

/** Throws UsageError. */
function dataPathOf(address: string | undefined): { readonly dataPathAddress?: string } {
  if (address === undefined) return {};
  if (parseAddress(address) === null)
    throw new UsageError(`invalid argument "${address}" for "--data-path-addr" flag: expected an IP address`);
  return { dataPathAddress: address };
}

function dataplaneOf(values: {
  readonly "dataplane-driver"?: string | undefined;
  readonly "dataplane-protocol"?: string | undefined;
}): { readonly dataplane?: { readonly path: string; readonly generation: Generation } } {
  const { "dataplane-driver": path, "dataplane-protocol": text = "current" } = values;
  const generation = generations.find((each) => each === text);
  if (generation === undefined)
    throw new UsageError(
      `invalid argument "${text}" for "--dataplane-protocol" flag: expected one of ${generations.join(", ")}`,
    );
  return path === undefined ? {} : { dataplane: { path, generation } };
}
