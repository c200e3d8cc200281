/** `muster volume`: create, ls, inspect, update, rm. Cluster volumes only, provided by storage plugins. */
import {
  volumeAvailabilities,
  volumeObject,
  volumeScopes,
  volumeSharings,
  volumeWord,
} from "../lib/docker-objects/index.ts";
import {
  Annotations,
  CapacityRange,
  ControlService,
  CreateVolumeRequest,
  Driver,
  GetVolumeRequest,
  ListSecretsRequest,
  ListVolumesRequest,
  RemoveVolumeRequest,
  Topology,
  TopologyRequirement,
  UpdateVolumeRequest,
  Volume,
  VolumeAccessMode,
  VolumeAccessMode_BlockVolume,
  VolumeAccessMode_MountVolume,
  VolumeSecret,
  VolumeSpec,
  type Secret,
} from "../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { contentName, findNamed } from "./content.ts";
import { withManager, type ManagerClient } from "./manager-client.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import type { FlagValues } from "./service/flags.ts";
import { labelFields, printListing } from "./table.ts";
import { csvFields, parseBytes, parseChoice, parseLabels, parsePairs } from "./values.ts";

const methods = ControlService.methods;
async function listVolumes(client: ManagerClient): Promise<readonly Volume[]> {
  return (await client.call(methods.ListVolumes, ListVolumesRequest.create({}))).volumes;
}

const createOptions = {
  driver: { type: "string", short: "d", value: "PLUGIN", help: "CSI plugin" },
  label: { type: "string", multiple: true, value: "KEY=VALUE", help: "Volume label" },
  opt: { type: "string", short: "o", multiple: true, value: "KEY=VALUE", help: "Option for the plugin" },
  group: { type: "string", value: "NAME", help: "Volume group, which services can request instead of a volume" },
  type: { type: "string", value: "TYPE", help: "Access type: mount or block (default block)" },
  scope: {
    type: "string",
    value: "SCOPE",
    help: "Number of nodes that may use the volume at once: single or multi (default single)",
  },
  sharing: {
    type: "string",
    value: "SHARING",
    help: "Sharing between tasks: none, readonly, onewriter or all (default none)",
  },
  availability: {
    type: "string",
    value: "AVAILABILITY",
    help: "Availability: active, pause or drain (default active)",
  },
  "required-bytes": { type: "string", value: "BYTES", help: "Minimum size of the volume" },
  "limit-bytes": { type: "string", value: "BYTES", help: "Maximum size of the volume" },
  secret: { type: "string", multiple: true, value: "KEY=SECRET", help: "Secret to pass to the plugin" },
  "topology-required": {
    type: "string",
    multiple: true,
    value: "KEY=VALUE,…",
    help: "Topology from one of which the volume must be accessible",
  },
  "topology-preferred": {
    type: "string",
    multiple: true,
    value: "KEY=VALUE,…",
    help: "Topology preferred for the volume, in order of preference",
  },
} as const;

function topologies(texts: readonly string[], flag: string): readonly Topology[] {
  return texts.map((text) => {
    const segments: Record<string, string> = {};
    for (const field of csvFields(text, flag)) {
      const at = field.indexOf("=");
      if (at < 1) throw new UsageError(`--${flag}: invalid field "${field}": expected KEY=VALUE`);
      segments[field.slice(0, at)] = field.slice(at + 1);
    }
    return Topology.create({ segments });
  });
}

function accessModeOf(values: FlagValues<typeof createOptions>): VolumeAccessMode {
  const type = values.type ?? "block";
  if (type !== "mount" && type !== "block")
    throw new UsageError(`invalid argument "${type}" for "--type" flag: expected mount or block`);
  return VolumeAccessMode.create({
    scope: parseChoice(values.scope ?? "single", "scope", volumeScopes),
    sharing: parseChoice(values.sharing ?? "none", "sharing", volumeSharings),
    block: type === "block" ? VolumeAccessMode_BlockVolume.create() : null,
    mount: type === "mount" ? VolumeAccessMode_MountVolume.create() : null,
  });
}

/** Parses `KEY=SECRET`; sorted by key, like Docker. */
function secretsOf(texts: readonly string[], known: readonly Secret[]): readonly VolumeSecret[] {
  return texts
    .map((text) => {
      const at = text.indexOf("=");
      if (at < 1) throw new UsageError(`invalid argument "${text}" for "--secret" flag: expected KEY=SECRET`);
      return VolumeSecret.create({ key: text.slice(0, at), secret: findNamed("secret", text.slice(at + 1), known).id });
    })
    .toSorted((a, b) => (a.key < b.key ? -1 : 1));
}

function specOf(name: string, values: FlagValues<typeof createOptions>, secrets: readonly Secret[]): VolumeSpec {
  const requisite = topologies(values["topology-required"] ?? [], "topology-required");
  const preferred = topologies(values["topology-preferred"] ?? [], "topology-preferred");
  const bytes = (flag: "required-bytes" | "limit-bytes"): number => {
    const text = values[flag];
    return text === undefined ? 0 : parseBytes(text, flag);
  };
  const capacityRange = CapacityRange.create({
    requiredBytes: bytes("required-bytes"),
    limitBytes: bytes("limit-bytes"),
  });
  const hasRange = capacityRange.requiredBytes > 0 || capacityRange.limitBytes > 0;
  return VolumeSpec.create({
    annotations: Annotations.create({ name, labels: parseLabels(values.label ?? []) }),
    group: values.group ?? "",
    driver: Driver.create({ name: values.driver ?? "", options: parsePairs(values.opt ?? []) }),
    accessMode: accessModeOf(values),
    secrets: secretsOf(values.secret ?? [], secrets),
    AccessibilityRequirements:
      requisite.length + preferred.length === 0 ? null : TopologyRequirement.create({ requisite, preferred }),
    capacityRange: hasRange ? capacityRange : null,
    availability: parseChoice(values.availability ?? "active", "availability", volumeAvailabilities),
  });
}

const create = command({
  operands: "VOLUME",
  min: 1,
  max: 1,
  summary: "Create a cluster volume with a CSI plugin.",
  options: createOptions,
  run: ({ values, operands: [name = ""], shell }) => {
    if (values.driver === undefined) throw new UsageError("--driver is required: it names the storage plugin");
    return withManager(shell, async (client) => {
      const isSecret = (values.secret ?? []).length > 0;
      const secrets = isSecret ? (await client.call(methods.ListSecrets, ListSecretsRequest.create({}))).secrets : [];
      await client.call(methods.CreateVolume, CreateVolumeRequest.create({ spec: specOf(name, values, secrets) }));
      // Like Docker: services refer to volumes by name.
      shell.print(name);
    });
  },
});

/** Docker's wording. */
function statusOf({ pendingDelete, publishStatus, volumeInfo }: Volume): string {
  if (pendingDelete) return "pending removal";
  if ((volumeInfo?.volumeId ?? "") === "") return "pending creation";
  if (publishStatus.length === 0) return "created";
  return `in use (${publishStatus.length} node${publishStatus.length === 1 ? "" : "s"})`;
}

function availabilityOf({ spec }: Volume): string {
  return volumeWord(volumeAvailabilities, spec?.availability ?? 0);
}

/** Values of one key are ORed, keys are ANDed, as in Docker. Throws UsageError. */
function matching(texts: readonly string[]): (volume: Volume) => boolean {
  const pairs = texts.map((text) => {
    const match = /^(id|name|label|driver|group)=(.*)$/s.exec(text);
    if (match === null)
      throw new UsageError(`invalid filter "${text}": expected id=, name=, label=, driver= or group=`);
    return { key: match[1] as string, value: match[2] as string };
  });
  const meets = (volume: Volume, key: string, value: string): boolean => {
    switch (key) {
      case "id":
        return volume.id.startsWith(value);
      case "name":
        return contentName(volume).includes(value);
      case "driver":
        return volume.spec?.driver?.name === value;
      case "group":
        return volume.spec?.group === value;
      default: {
        const at = value.indexOf("=");
        const held = volume.spec?.annotations?.labels[at < 0 ? value : value.slice(0, at)];
        return held !== undefined && (at < 0 || held === value.slice(at + 1));
      }
    }
  };
  const byKey = Map.groupBy(pairs, ({ key }) => key);
  return (volume) => [...byKey].every(([key, wanted]) => wanted.some(({ value }) => meets(volume, key, value)));
}

const ls = command({
  summary: "List cluster volumes.",
  options: {
    ...listingOptions,
    cluster: { type: "boolean", help: "Accepted for compatibility; Muster has only cluster volumes" },
    filter: {
      type: "string",
      multiple: true,
      short: "f",
      value: "KEY=VALUE",
      help: "Filter by id=, name=, label=, driver= or group=",
    },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const volumes = (await listVolumes(client))
        .filter(matching(values.filter ?? []))
        .toSorted((a, b) => contentName(a).localeCompare(contentName(b)));
      printListing(
        shell,
        {
          headings: ["VOLUME NAME", "GROUP", "DRIVER", "AVAILABILITY", "STATUS"],
          keys: ["Name", "Group", "Driver", "Availability", "Status"],
          rows: volumes.map((volume) => ({
            id: contentName(volume),
            cells: [
              contentName(volume),
              volume.spec?.group ?? "",
              volume.spec?.driver?.name ?? "",
              availabilityOf(volume),
              statusOf(volume),
            ],
            object: () => Volume.toJson(volume),
            fields: () => labelFields(volume.spec?.annotations?.labels),
          })),
        },
        values,
      );
    }),
});

const inspect = command({
  operands: "VOLUME [VOLUME...]",
  min: 1,
  summary: "Display detailed information on one or more volumes: their plugin's answers and the nodes that have them.",
  options: inspectOptions,
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const all = await listVolumes(client);
      const find = async (operand: string): Promise<Volume | null> => {
        const { id } = findNamed("volume", operand, all);
        return (await client.call(methods.GetVolume, GetVolumeRequest.create({ volumeId: id }))).volume;
      };
      await inspectEach({ shell, operands, format: values.format }, find, (volume) => ({
        docker: volumeObject(volume),
        wire: () => Volume.toJson(volume),
      }));
    }),
});

const update = command({
  operands: "VOLUME",
  min: 1,
  max: 1,
  summary: "Update a volume's availability or labels; drain moves tasks away from it.",
  options: {
    availability: createOptions.availability,
    "label-add": { type: "string", multiple: true, value: "KEY=VALUE", help: "Add or update a label" },
    "label-rm": { type: "string", multiple: true, value: "KEY", help: "Remove a label" },
  },
  run: ({ values, operands: [operand = ""], shell }) =>
    withManager(shell, async (client) => {
      const { id, meta, spec } = findNamed("volume", operand, await listVolumes(client));
      const before = spec ?? VolumeSpec.create();
      const { availability: wanted } = values;
      const availability =
        wanted === undefined ? before.availability : parseChoice(wanted, "availability", volumeAvailabilities);
      const labels = { ...before.annotations?.labels, ...parseLabels(values["label-add"] ?? [], "label-add") };
      for (const key of values["label-rm"] ?? []) delete labels[key];
      const annotations = Annotations.patch(before.annotations ?? Annotations.create(), { labels });
      const next = VolumeSpec.patch(before, { annotations, availability });
      const request = UpdateVolumeRequest.create({ volumeId: id, volumeVersion: meta?.version ?? null, spec: next });
      await client.call(methods.UpdateVolume, request);
      shell.print(operand);
    }),
});

const rm = command({
  operands: "VOLUME [VOLUME...]",
  min: 1,
  summary: "Remove one or more volumes that no node uses, and delete them at their plugins.",
  options: { force: { type: "boolean", short: "f", help: "Remove the volume at once, without asking its plugin" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = findNamed("volume", operand, await listVolumes(client));
        const force = values.force === true;
        await client.call(methods.RemoveVolume, RemoveVolumeRequest.create({ volumeId: id, force }));
        shell.print(operand);
      }),
    ),
});

export const commands: Readonly<Record<string, Command>> = { create, ls, inspect, update, rm };
