/** Converts `volumes` and `tmpfs` of a service to mounts, field by field like Docker's client. */
import {
  Driver,
  Mount,
  Mount_BindOptions,
  Mount_BindOptions_Propagation,
  Mount_TmpfsOptions,
  Mount_Type,
  Mount_VolumeOptions,
} from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import { parseBytes } from "../values.ts";
import { scoped, withStackLabel } from "./names.ts";
import type { View } from "./view.ts";

const types: Readonly<Record<string, Mount_Type>> = {
  bind: Mount_Type.BIND,
  volume: Mount_Type.VOLUME,
  tmpfs: Mount_Type.TMPFS,
  npipe: Mount_Type.NPIPE,
  cluster: Mount_Type.CLUSTER,
};
const propagations: Readonly<Record<string, Mount_BindOptions_Propagation>> = {
  rprivate: Mount_BindOptions_Propagation.RPRIVATE,
  private: Mount_BindOptions_Propagation.PRIVATE,
  rshared: Mount_BindOptions_Propagation.RSHARED,
  shared: Mount_BindOptions_Propagation.SHARED,
  rslave: Mount_BindOptions_Propagation.RSLAVE,
  slave: Mount_BindOptions_Propagation.SLAVE,
};
const recursions: Readonly<Record<string, Partial<Mount_BindOptions>>> = {
  disabled: { nonrecursive: true },
  writable: { readonlynonrecursive: true },
  readonly: { readonlyforcerecursive: true },
};

/** Options by mount type. */
const optionsOf: Readonly<Record<string, readonly string[]>> = {
  bind: ["bind"],
  npipe: ["bind"],
  volume: ["volume"],
  tmpfs: ["tmpfs"],
  cluster: ["cluster"],
};

/** Prefix of the source of a cluster volume that may be any volume of a group. */
const groupPrefix = "group:";

function bindOptions(view: View): Mount_BindOptions | null {
  if (!view.has("bind")) return null;
  const bind = view.child("bind");
  const isCreated = bind.boolean("create_host_path");
  return Mount_BindOptions.create({
    propagation: propagations[bind.text("propagation")] ?? Mount_BindOptions_Propagation.RPRIVATE,
    ...(isCreated === null ? {} : { createmountpoint: isCreated }),
    ...recursions[bind.text("recursive")],
  });
}

function volumeFields(view: View, stack: string, volumes: ReadonlyMap<string, View>): Partial<Mount> {
  const source = view.text("source");
  if (source === "") return {};
  const volume = volumes.get(source);
  if (volume === undefined)
    throw view.mistake("source", `refers to the volume '${source}', which 'volumes' does not define`);
  const own = view.child("volume");
  const isExternal = volume.boolean("external") === true;
  const named = volume.text("name") || (isExternal ? source : scoped(stack, source));
  const isDriverSaid = volume.has("driver") || volume.has("driver_opts");
  return {
    source: named,
    volumeOptions: Mount_VolumeOptions.create({
      nocopy: own.boolean("nocopy") ?? false,
      subpath: own.text("subpath"),
      labels: isExternal ? {} : withStackLabel(stack, { ...volume.pairs("labels"), ...own.pairs("labels") }),
      driverConfig:
        isExternal || !isDriverSaid
          ? null
          : Driver.create({ name: volume.text("driver"), options: volume.pairs("driver_opts") }),
    }),
  };
}

function clusterSource(view: View, stack: string, volumes: ReadonlyMap<string, View>): string {
  const source = view.text("source");
  if (source === "") throw view.mistake("", "requires 'source' for a cluster volume");
  if (source.startsWith(groupPrefix)) return source;
  const volume = volumes.get(source);
  if (volume === undefined)
    throw view.mistake("source", `refers to the volume '${source}', which 'volumes' does not define`);
  return volume.text("name") || (volume.boolean("external") === true ? source : scoped(stack, source));
}

function mount(view: View, stack: string, volumes: ReadonlyMap<string, View>): Mount {
  const kind = view.text("type");
  const type = types[kind];
  if (type === undefined) throw view.mistake("type", `is '${kind}', which cluster nodes cannot mount`);
  if (!view.has("target")) throw view.mistake("", "requires 'target'");
  for (const options of ["bind", "volume", "tmpfs", "image", "cluster"]) {
    if (view.has(options) && !optionsOf[kind]?.includes(options)) {
      throw view.mistake(options, `is not supported for a mount of type ${kind}`);
    }
  }
  // `consistency` has no effect on cluster nodes, and Docker's manager drops it.
  const common = {
    type,
    target: view.text("target"),
    source: view.text("source"),
    readonly: view.boolean("read_only") ?? false,
  };
  switch (kind) {
    case "volume":
      return Mount.create({ ...common, ...volumeFields(view, stack, volumes) });
    case "cluster":
      return Mount.create({ ...common, source: clusterSource(view, stack, volumes) });
    case "tmpfs": {
      if (common.source !== "") throw view.mistake("source", "is not supported for a tmpfs");
      const tmpfs = view.child("tmpfs");
      const options = Mount_TmpfsOptions.create({ sizeBytes: tmpfs.bytes("size"), mode: tmpfs.mode("mode") ?? 0 });
      return Mount.create({ ...common, tmpfsOptions: view.has("tmpfs") ? options : null });
    }
    default:
      if (common.source === "") throw view.mistake("", `requires 'source' for a mount of type ${kind}`);
      return Mount.create({ ...common, bindOptions: bindOptions(view) });
  }
}

/** Parses an entry of `tmpfs` such as `/run:size=64m,mode=1770`. */
function tmpfsMount(text: string, view: View): Mount {
  const [target = "", options = ""] = text.split(":");
  const fields: { sizeBytes?: number; mode?: number; options?: string } = {};
  const others: string[] = [];
  for (const option of options === "" ? [] : options.split(",")) {
    const [key, value = ""] = option.split("=");
    if (key === "size") fields.sizeBytes = sizeOf(value, view);
    else if (key === "mode") fields.mode = Number.parseInt(value, 8);
    else others.push(option);
  }
  if (others.length > 0) fields.options = others.join(",");
  return Mount.create({ type: Mount_Type.TMPFS, target, tmpfsOptions: Mount_TmpfsOptions.create(fields) });
}

function sizeOf(text: string, view: View): number {
  try {
    return parseBytes(text, "size");
  } catch (error) {
    if (error instanceof UsageError)
      throw view.mistake("tmpfs", `has an invalid size: '${text}' (expected such as 64m)`);
    throw error;
  }
}

export function mountsOf(service: View, stack: string, volumes: ReadonlyMap<string, View>): readonly Mount[] {
  const mounts = service.items("volumes").map((view) => mount(view, stack, volumes));
  return [...mounts, ...service.texts("tmpfs").map((text) => tmpfsMount(text, service))];
}
