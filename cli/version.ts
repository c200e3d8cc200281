/** `muster version`: the version of this command and where it comes from, of its components, protocols and file formats. */
import { sessionFormat } from "../machines/agent/session-format.ts";
import { dataDirFormat } from "../processes/data-dir.ts";
import { knownLevel } from "../proto/format-level.ts";
import { newestVersion, oldestVersion } from "../edges/docker/api-version.ts";
import { protocolVersionMax } from "../edges/juju/dispatch.ts";
import { appVersion, coreVersion } from "../edges/plugin/handshake.ts";
import { driverApiVersion } from "../lib/driver-api.ts";
import { packagedBuild, packages, version } from "../lib/version.ts";
import { backupFormat } from "../runtime/backup/format.ts";
import { findBinary } from "../runtime/nats/server-binary.ts";
import { NatsServerProblem } from "../runtime/nats/server-problem.ts";
import { busFormat } from "../runtime/store/sealed-bus.ts";
import { formatVersion as recordingFormat } from "../runtime/recording/format.ts";
import { command, formatOf, plainFormat, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";

function origin(): string {
  const build = packagedBuild();
  if (build === undefined) return "a checkout";
  if (build === null) return "a package of an unknown commit";
  return `${build.commit.slice(0, 12)}${build.changes ? " with changes" : ""}, ${build.date.slice(0, 10)}`;
}

/** Packages that decide what is sent and stored. */
const corePackages = ["nats", "protobufjs", "xstate"] as const;

/** The nats-server that a manager on this machine would run; null if none is found. */
async function natsServerVersion(): Promise<string | null> {
  try {
    return (await findBinary(process.env["MUSTER_NATS_SERVER"])).version;
  } catch (error) {
    if (error instanceof NatsServerProblem) return null;
    throw error;
  }
}

/** Protocols without a number are named by their protobuf package, which has the generation. */
const protocols: Readonly<Record<string, string>> = {
  muster: "muster.v1",
  swarmkit: "docker.swarmkit.v1",
  "engine-api": `${oldestVersion} to ${newestVersion}`,
  "json-api": `Juju protocol ${protocolVersionMax}`,
  "driver-plugins": `go-plugin ${coreVersion}, Nomad drivers ${appVersion}, interface ${driverApiVersion}`,
  "storage-plugins": "csi.v1",
};

const formats: Readonly<Record<string, number>> = {
  "log (level)": knownLevel,
  bus: busFormat,
  session: sessionFormat,
  "data dir": dataDirFormat,
  backup: backupFormat,
  recording: recordingFormat,
};

const nameWidth = 18;

export const versions: Command = command({
  max: 0,
  summary:
    "Display the versions of this command, of its components, and of the protocols and file formats that it knows.",
  options: {
    format: plainFormat,
    json: { type: "boolean", help: "The same as --format json" },
  },
  async run({ values, shell }) {
    if (values.json === true && values.format !== undefined)
      throw new UsageError("--json and --format exclude each other: give one of them");
    const components: Readonly<Record<string, string | null>> = {
      node: process.versions.node,
      "nats-server": await natsServerVersion(),
      ...Object.fromEntries(corePackages.map((name) => [name, packages[name] ?? null])),
    };
    if (values.json === true || formatOf(values.format) === "json") {
      shell.print(JSON.stringify({ version, build: packagedBuild() ?? null, components, protocols, formats }));
      return;
    }
    shell.print(`muster ${version} (${origin()})`);
    for (const [title, rows] of Object.entries({ components, protocols, formats })) {
      shell.print(`\n${title}:`);
      for (const [name, found] of Object.entries(rows))
        shell.print(`  ${name.padEnd(nameWidth)}${found ?? "not found"}`);
    }
  },
});
