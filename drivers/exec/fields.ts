/** Configuration of the exec driver and of its tasks. */
import { blocks, flag, list, map, number, text, type ConfigOf } from "../../edges/plugin/server/index.ts";

export const driverFields = {
  /** Where the driver stores the state of its tasks; must be empty after a reboot, like /run. */
  state_dir: text(),
  /** `full`: tasks are isolated by default; `none`: only on request. */
  isolation: text({ default: "full" }),
  /** Default `private` or `host`. Unset: `private` if isolation is `full` and the driver runs as root. */
  default_pid_mode: text(),
  default_ipc_mode: text(),
  /** Capabilities that tasks may have; unset: Nomad's default list. */
  allow_caps: list("string"),
  /** Whether a task may run without seccomp, and gain privileges through programs such as sudo. */
  allow_unconfined: flag({ default: false }),
  /** The node's directories visible in a private filesystem, read-only; unset: those of Nomad's `chroot_env`. */
  root_paths: list("string"),
};

export const taskFields = {
  /** An absolute path, a path in the task's directory, or a name searched there, in its `local` directory, and on its PATH. */
  command: text({ required: true }),
  args: list("string", { default: [] }),
  /** Absolute, or in the task's directory, which is the default. */
  work_dir: text(),
  /** The command's root: absolute, or in the task's directory. */
  chroot: text(),
  /** From -1000 to 1000; with higher values the kernel kills it earlier when the machine is out of memory. */
  oom_score_adj: number({ default: 0 }),
  /** `private`: a separate namespace for processes, or for System V objects and message queues; `host`: the node's. */
  pid_mode: text(),
  ipc_mode: text(),
  cap_add: list("string", { default: [] }),
  cap_drop: list("string", { default: [] }),
  /** Programs cannot gain more privileges than the task started with. */
  no_new_privileges: flag(),
  /** `default` or `unconfined`. */
  seccomp: text(),
  /** `private`: a separate root with `root_paths`, the task's directories and its volumes; `host`: the node's files. */
  filesystem: text({ default: "host" }),
  /** Visible paths (Landlock), each as `PERMS:PATH` with PERMS of r, w, c and x; empty: all. */
  unveil: list("string", { default: [] }),
  /** Fetched before the task starts, in this order. */
  artifact: blocks({
    /** An http or https URL. */
    source: text({ required: true }),
    /** Path in the task's directory: of a file in mode `file`, otherwise of a directory. */
    destination: text({ default: "local/" }),
    /** `md5:`, `sha1:`, `sha256:` or `sha512:` followed by hexadecimal digits. */
    checksum: text(),
    /** `any`: unpacks archives; `file`: never unpacks; `dir`: must be an archive. */
    mode: text({ default: "any" }),
    headers: map("string", { default: {} }),
  }),
};

export type DriverConfig = ConfigOf<typeof driverFields>;
export type ExecConfig = ConfigOf<typeof taskFields>;

/** The configuration of a driver that was not configured. */
export const configDefault: DriverConfig = {
  state_dir: null,
  isolation: "full",
  default_pid_mode: null,
  default_ipc_mode: null,
  allow_caps: null,
  allow_unconfined: false,
  root_paths: null,
};
