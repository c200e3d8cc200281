/** Linux capabilities: their names, and those of a task. */

/** In the kernel's order: the index is the number. */
const names = [
  ..."CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE".split(
    " ",
  ),
  ..."NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT".split(
    " ",
  ),
  ..."SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL".split(
    " ",
  ),
  ..."SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE".split(
    " ",
  ),
] as const;

/** Capabilities that tasks may have by default: Nomad's `allow_caps`. */
const allowedDefault =
  "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT".split(
    " ",
  );

/**
 * Capabilities that a non-root task may add if the operator allows none by name. The others of the default list would give it
 * root's access to the node's files.
 */
const harmless: readonly string[] = ["NET_BIND_SERVICE", "AUDIT_WRITE"];

/** The capability's number. */
export function capabilityNumber(name: string): number {
  return names.indexOf(name);
}

/** Accepts `CAP_CHOWN`, `chown` and `ALL`. Throws for an unknown capability. */
function known(given: readonly string[], all: readonly string[]): readonly string[] {
  return given.flatMap((text) => {
    const name = text.toUpperCase().replace(/^CAP_/, "");
    if (name === "ALL") return all;
    if (!names.includes(name)) throw new Error(`unknown capability "${text}"`);
    return [name];
  });
}

interface CapabilitiesAsked {
  /** Null: Nomad's default list. */
  readonly allow: readonly string[] | null;
  readonly add: readonly string[];
  readonly drop: readonly string[];
  readonly isRoot: boolean;
}

export interface TaskCapabilities {
  /** The bounding set: no program in the task can gain others. */
  readonly bounding: readonly string[];
  /** The capabilities of its first process. */
  readonly own: readonly string[];
}

/** Throws for capabilities that the operator does not allow. */
export function capabilitiesOf({ allow, add, drop, isRoot }: CapabilitiesAsked): TaskCapabilities {
  const allowed = allow === null ? allowedDefault : known(allow, names);
  const dropped = known(drop, names);
  const added = known(add, allowed);
  const addable = allow === null && !isRoot ? harmless : allowed;
  const refused = added.filter((name) => !addable.includes(name));
  if (refused.length > 0)
    throw new Error(`cap_add: this node does not allow ${refused.join(", ")} (the driver's allow_caps)`);
  const kept = new Set([...allowedDefault.filter((name) => allowed.includes(name)), ...added]);
  for (const name of dropped) if (!added.includes(name)) kept.delete(name);
  const bounding = names.filter((name) => kept.has(name));
  return { bounding, own: isRoot ? bounding : bounding.filter((name) => added.includes(name)) };
}
