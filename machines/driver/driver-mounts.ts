/** What a task of a driver has of the node's files and devices: what may be asked for, and what the node has to bring about. */
import {
  Mount_BindOptions_Propagation as Propagation,
  Mount_Type,
  type DriverDevice,
  type Mount,
} from "../../proto/gen/messages.ts";

/** Something that has a path on the node, or is given one. */
export type MountSource =
  /** `isMade`: as a directory, where it is missing. */
  | { readonly kind: "path"; readonly path: string; readonly isMade: boolean }
  /** A directory of the node's by this name, which outlives its tasks; without a name, the task's own. */
  | { readonly kind: "volume"; readonly name: string; readonly subpath: string }
  /** Memory: 0 bytes is the kernel's default, half of all there is. */
  | { readonly kind: "memory"; readonly bytes: number; readonly mode: number };

export interface PlannedMount {
  readonly target: string;
  readonly isReadOnly: boolean;
  /** In Nomad's words: empty for the driver's choice. */
  readonly propagation: "" | "private" | "host-to-task" | "bidirectional";
  readonly source: MountSource;
}

/** A cluster volume, where its storage plugin has put it. */
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

/** The kernel's default for directories that all may write to. */
const memoryMode = 0o1777;
/** Names directories. */
const volumePattern = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;

function isPlain(path: string): boolean {
  return path.split("/").every((part) => part !== "..");
}

/** What is wrong with them, in a sentence that begins in the middle; null when nothing is. */
export function mountsProblem(mounts: readonly Mount[], devices: readonly DriverDevice[]): string | null {
  const targets = new Set<string>();
  for (const mount of mounts) {
    const target = mount.target.replaceAll(/\/+/g, "/").replace(/\/$/, "");
    if (target === "" || !isPlain(target)) return `a mount cannot be at "${mount.target}"`;
    if (targets.has(target)) return `duplicate mount point: ${mount.target}`;
    targets.add(target);
    const problem = sourceProblem(mount);
    if (problem !== null) return problem;
  }
  for (const { hostPath, permissions, taskPath } of devices) {
    if (!hostPath.startsWith("/") || !isPlain(hostPath))
      return `a device is named by its absolute path, not "${hostPath}"`;
    if (taskPath !== "" && !taskPath.startsWith("/")) return `a device cannot be at "${taskPath}"`;
    if (!/^[rwm]*$/.test(permissions)) return `permissions of a device are some of r, w and m, not "${permissions}"`;
  }
  return null;
}

function sourceProblem({ source, target, type, volumeOptions }: Mount): string | null {
  switch (type) {
    case Mount_Type.BIND:
      return source.startsWith("/") && isPlain(source) ? null : `a bind mount names an absolute path, not "${source}"`;
    case Mount_Type.TMPFS:
      return source === "" ? null : `memory at ${target} has no source`;
    case Mount_Type.CLUSTER:
      return source === "" ? "a mount names no cluster volume" : null;
    case Mount_Type.VOLUME: {
      const driver = volumeOptions?.driverConfig?.name ?? "";
      if (driver !== "" && driver !== "local") return `a volume of a task of a driver is local, not of ${driver}`;
      if (!isPlain(volumeOptions?.subpath ?? "")) return `a volume has no part "${volumeOptions?.subpath}"`;
      return source === "" || volumePattern.test(source) ? null : `a volume cannot be called "${source}"`;
    }
    case Mount_Type.NPIPE:
      return "named pipes are of Windows";
  }
}

/** `given`: the cluster volumes that the task was given, which come first. The mounts are such as `mountsProblem` lets pass. */
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
