/** The files and devices of the node that a driver's task uses: what a task may request, and what the node must provide. */
import {
  Mount_BindOptions_Propagation as Propagation,
  Mount_Type,
  type DriverDevice,
  type Mount,
} from "../../proto/gen/messages.ts";

/** Something that has a path on the node, or gets one. */
type MountSource =
  /** `isMade`: a missing path is created as a directory. */
  | { readonly kind: "path"; readonly path: string; readonly isMade: boolean }
  /** A named directory of the node, which outlives its tasks; without a name, the task's own. */
  | { readonly kind: "volume"; readonly name: string; readonly subpath: string }
  /** A tmpfs: 0 bytes is the kernel's default, half of all memory. */
  | { readonly kind: "memory"; readonly bytes: number; readonly mode: number };

export interface PlannedMount {
  readonly target: string;
  readonly isReadOnly: boolean;
  /** Nomad's values; empty for the driver's default. */
  readonly propagation: "" | "private" | "host-to-task" | "bidirectional";
  readonly source: MountSource;
}

/** A cluster volume, where its storage plugin has mounted it. */
interface GivenVolume {
  readonly source: string;
  readonly target: string;
  readonly path: string;
}

const propagations: { readonly [Each in Propagation]: PlannedMount["propagation"] } = {
  [Propagation.RPRIVATE]: "",
  [Propagation.PRIVATE]: "private",
  [Propagation.RSHARED]: "bidirectional",
  [Propagation.SHARED]: "bidirectional",
  [Propagation.RSLAVE]: "host-to-task",
  [Propagation.SLAVE]: "host-to-task",
};

/** The kernel's default for world-writable directories. */
const memoryMode = 0o1777;
/** Volume names are names of directories. */
const volumePattern = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;

function isPlain(path: string): boolean {
  return path.split("/").every((part) => part !== "..");
}

/** The first error in the mounts; null if they are valid. */
export function mountsProblem(mounts: readonly Mount[], devices: readonly DriverDevice[]): string | null {
  const targets = new Set<string>();
  for (const mount of mounts) {
    const target = mount.target.replaceAll(/\/+/g, "/").replace(/\/$/, "");
    if (target === "" || !isPlain(target)) return `invalid mount target "${mount.target}"`;
    if (targets.has(target)) return `duplicate mount point: ${mount.target}`;
    targets.add(target);
    const problem = sourceProblem(mount);
    if (problem !== null) return problem;
  }
  for (const { hostPath, permissions, taskPath } of devices) {
    if (!hostPath.startsWith("/") || !isPlain(hostPath))
      return `invalid device path "${hostPath}": expected an absolute path`;
    if (taskPath !== "" && !taskPath.startsWith("/"))
      return `invalid device path "${taskPath}" in the task: expected an absolute path`;
    if (!/^[rwm]*$/.test(permissions))
      return `invalid device permissions "${permissions}": expected a combination of r, w and m`;
  }
  return null;
}

function sourceProblem({ source, target, type, volumeOptions }: Mount): string | null {
  switch (type) {
    case Mount_Type.BIND:
      return source.startsWith("/") && isPlain(source)
        ? null
        : `invalid bind mount source "${source}": expected an absolute path`;
    case Mount_Type.TMPFS:
      return source === "" ? null : `the tmpfs at ${target} must not have a source`;
    case Mount_Type.CLUSTER:
      return source === "" ? "a cluster mount needs the name of a volume" : null;
    case Mount_Type.VOLUME: {
      const driver = volumeOptions?.driverConfig?.name ?? "";
      if (driver !== "" && driver !== "local")
        return `unsupported volume driver ${driver}: tasks of drivers support only local volumes`;
      if (!isPlain(volumeOptions?.subpath ?? "")) return `invalid volume subpath "${volumeOptions?.subpath}"`;
      return source === "" || volumePattern.test(source) ? null : `invalid volume name "${source}"`;
    }
    case Mount_Type.NPIPE:
      return "named pipe mounts are supported on Windows only";
  }
}

/** `given`: the task's cluster volumes, which come first. The mounts must have passed `mountsProblem`. */
export function planMounts(mounts: readonly Mount[], given: readonly GivenVolume[]): readonly PlannedMount[] {
  const volumes = given.map(({ path, source, target }): PlannedMount => {
    const asked = mounts.find((mount) => mount.source === source && mount.target === target);
    return {
      target,
      isReadOnly: asked?.readonly ?? false,
      propagation: "",
      source: { kind: "path", path, isMade: false },
    };
  });
  const others = mounts.filter(({ type }) => type !== Mount_Type.CLUSTER);
  return [
    ...volumes,
    ...others.map((mount): PlannedMount => {
      const propagation = propagations[mount.bindOptions?.propagation ?? Propagation.RPRIVATE];
      return { target: mount.target, isReadOnly: mount.readonly, propagation, source: sourceOf(mount) };
    }),
  ];
}

function sourceOf({ bindOptions, source, tmpfsOptions, type, volumeOptions }: Mount): MountSource {
  if (type === Mount_Type.TMPFS)
    return { kind: "memory", bytes: tmpfsOptions?.sizeBytes ?? 0, mode: tmpfsOptions?.mode || memoryMode };
  if (type === Mount_Type.VOLUME) return { kind: "volume", name: source, subpath: volumeOptions?.subpath ?? "" };
  return { kind: "path", path: source, isMade: bindOptions?.createmountpoint ?? false };
}
