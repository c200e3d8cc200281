/** `muster cluster`: the cluster object with swarmctl's verbs: ls, inspect, update. */
import { clusterObject } from "../lib/docker-objects/cluster.ts";
import {
  Cluster,
  ClusterSpec,
  ControlService,
  Driver,
  EncryptionConfig,
  KeyRotation,
  ListClustersRequest,
  TaskDefaults,
} from "../proto/gen/messages.ts";
import { withoutJoinTokens } from "../machines/redaction.ts";
import { updateCluster } from "./cluster-update.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { cluster, listNodes, withManager, type ManagerClient } from "./manager-client.ts";
import { inspectEach } from "./operands.ts";
import { rotationProgress } from "./root-rotation.ts";
import { withSettings } from "./swarm/settings.ts";
import { printListing } from "./table.ts";
import { notThere } from "../lib/user-error.ts";
import { ago, durationText, parsePairs } from "./values.ts";

const nameOf = ({ spec }: Cluster): string => spec?.annotations?.name ?? "";

/** A manager has exactly one cluster; the name only guards against a mix-up. */
async function findCluster(client: ManagerClient, operand: string): Promise<Cluster> {
  const found = await cluster(client);
  if (found.id !== operand && nameOf(found) !== operand && !found.id.startsWith(operand))
    throw notThere("cluster", operand);
  return found;
}

const ls = command({
  summary: "List clusters; a manager has exactly one.",
  options: listingOptions,
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const { clusters } = await client.call(ControlService.methods.ListClusters, ListClustersRequest.create({}));
      printListing(
        shell,
        {
          headings: ["ID", "NAME", "CREATED", "AUTOLOCK", "ROOT ROTATION"],
          rows: clusters.map((each) => ({
            id: each.id,
            cells: [
              each.id,
              nameOf(each),
              ago(each.meta?.createdAt ?? null, shell.now()),
              each.spec?.encryptionConfig?.autoLockManagers === true ? "on" : "off",
              each.rootCa?.rootRotation == null ? "" : "in progress",
            ],
            object: () => Cluster.toJson(withoutJoinTokens(each)),
          })),
        },
        values,
      );
    }),
});

/** Human-readable: the settings, and which nodes delay a root rotation. */
async function pretty(client: ManagerClient, found: Cluster): Promise<string> {
  const { rootCa, spec } = found;
  const progress = rotationProgress(found, await listNodes(client));
  const lines: readonly (readonly [string, string])[] = [
    ["ID", found.id],
    ["Name", nameOf(found)],
    ["Task history limit", String(spec?.orchestration?.taskHistoryRetentionLimit ?? 0)],
    ["Dispatcher heartbeat", durationText(spec?.dispatcher?.heartbeatPeriod ?? null)],
    ["Autolock", spec?.encryptionConfig?.autoLockManagers === true ? "on" : "off"],
    ["Certificate expiry", durationText(spec?.caConfig?.nodeCertExpiry ?? null)],
    ...(spec?.caConfig?.externalCas ?? []).map(({ url }) => ["External CA", `cfssl: ${url}`] as const),
    ["Root digest", rootCa?.caCertHash ?? ""],
    [
      "Root rotation",
      rootCa?.rootRotation == null
        ? "none"
        : `in progress: ${progress.renewed}/${progress.total} nodes have renewed${progress.waitsFor === "" ? "" : `, waiting for ${progress.waitsFor}`}`,
    ],
  ];
  const width = Math.max(...lines.map(([label]) => label.length));
  return lines.map(([label, value]) => `${`${label}:`.padEnd(width + 2)}${value}`).join("\n");
}

const inspect = command({
  operands: "CLUSTER",
  min: 1,
  max: 1,
  summary: "Display the cluster, without its keys and join tokens ('muster token' prints those).",
  options: { ...inspectOptions, pretty: { type: "boolean", help: "Print in a human-friendly format" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      if (values.pretty === true) {
        if (values.format !== undefined) throw new UsageError("--format is incompatible with --pretty");
        return shell.print(await pretty(client, await findCluster(client, operands[0] as string)));
      }
      await inspectEach(
        { shell, operands, format: values.format },
        (operand) => findCluster(client, operand),
        (found) => ({ docker: clusterObject(found), wire: () => Cluster.toJson(withoutJoinTokens(found)) }),
      );
    }),
});

/** swarmctl's flag names for settings of `swarm update`. */
const settingNames = {
  certexpiry: "cert-expiry",
  heartbeatperiod: "dispatcher-heartbeat",
  taskhistory: "task-history-limit",
  "external-ca": "external-ca",
} as const;

function logDriver(spec: ClusterSpec, name: string | undefined, options: readonly string[]): ClusterSpec {
  if (name === undefined && options.length > 0) throw new UsageError("--log-opt requires --log-driver");
  if (name === undefined) return spec;
  const taskDefaults = TaskDefaults.patch(spec.taskDefaults ?? TaskDefaults.create({}), {
    logDriver: name === "" ? null : Driver.create({ name, options: parsePairs(options) }),
  });
  return ClusterSpec.patch(spec, { taskDefaults });
}

const update = command({
  operands: "CLUSTER",
  min: 1,
  max: 1,
  summary: "Update settings of the cluster with swarmctl's flags; 'muster swarm update' has Docker's.",
  options: {
    certexpiry: { type: "string", value: "DURATION", help: "Validity period of node certificates" },
    heartbeatperiod: { type: "string", value: "DURATION", help: "Dispatcher heartbeat period" },
    taskhistory: { type: "string", value: "NUMBER", help: "Number of finished tasks to keep per slot" },
    "external-ca": {
      type: "string",
      multiple: true,
      value: "protocol=cfssl,url=URL",
      help: "External CA that signs certificates",
    },
    "rotate-join-token": { type: "string", value: "worker|manager", help: "Rotate the join token of this role" },
    autolock: { type: "boolean", help: "Lock managers when they restart, until the unlock key is given" },
    "rotate-unlock-key": { type: "boolean", help: "Rotate the unlock key" },
    "log-driver": { type: "string", value: "DRIVER", help: "Default logging driver of tasks; empty for none" },
    "log-opt": { type: "string", multiple: true, value: "KEY=VALUE", help: "Option of the default logging driver" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const role = values["rotate-join-token"];
      if (role !== undefined && role !== "worker" && role !== "manager")
        throw new UsageError(`invalid argument "${role}" for "--rotate-join-token" flag: expected worker or manager`);
      if (Object.keys(values).length === 0)
        throw new UsageError("no settings to change: set at least one flag (see 'muster cluster update --help')");
      await findCluster(client, operands[0] as string);
      const settings = Object.fromEntries(
        Object.entries(settingNames).map(([flag, name]) => [name, values[flag as never]]),
      );
      const { autolock } = values;
      const { after } = await updateCluster(client, {
        spec: (before) => {
          const next = logDriver(withSettings(before, settings), values["log-driver"], values["log-opt"] ?? []);
          if (autolock === undefined) return next;
          const encryptionConfig = EncryptionConfig.patch(next.encryptionConfig ?? EncryptionConfig.create({}), {
            autoLockManagers: autolock,
          });
          return ClusterSpec.patch(next, { encryptionConfig });
        },
        rotation: KeyRotation.create({
          workerJoinToken: role === "worker",
          managerJoinToken: role === "manager",
          managerUnlockKey: values["rotate-unlock-key"] === true,
        }),
      });
      shell.print(after.id);
    }),
});

export const commands: Readonly<Record<string, Command>> = { ls, inspect, update };
