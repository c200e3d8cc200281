/** What the exec driver, and a task of it, can be told. */
import { blocks, flag, list, map, number, text, type ConfigOf } from "../../edges/plugin/server/index.ts";

export const driverFields = {
  /** Where the driver writes down what becomes of its tasks; must be empty after the machine has started anew, as /run is. */
  state_dir: text(),
  /** `full`: tasks are isolated unless they say otherwise; `none`: unless they say nothing. */
  isolation: text({ default: "full" }),
  /** `private` or `host`: of tasks that name none. Unset: `private` where isolation is `full` and the driver is root. */
  default_pid_mode: text(),
  default_ipc_mode: text(),
  /** The capabilities that tasks may have; unset: Nomad's default list. */
  allow_caps: list("string"),
  /** Whether a task may do without a seccomp profile, and gain privileges by programs such as sudo. */
  allow_unconfined: flag({ default: false }),
  /** Directories of the node that a task with files of its own sees, for reading; unset: those of Nomad's `chroot_env`. */
  root_paths: list("string"),
};

export const taskFields = {
  /** An absolute path, a path in the task's directory, or a name that is looked up there, in its `local`, and on its PATH. */
  command: text({ required: true }),
  args: list("string", { default: [] }),
  /** Absolute, or in the task's directory, which it is unless said. */
  work_dir: text(),
  /** The root that the command sees: absolute, or in the task's directory. */
  chroot: text(),
  /** From -1000 to 1000; how much earlier than others the kernel kills it when the machine's memory is used up. */
  oom_score_adj: number({ default: 0 }),
  /** `private`: processes, or System V objects and message queues, of its own; `host`: the node's. */
  pid_mode: text(),
  ipc_mode: text(),
  cap_add: list("string", { default: [] }),
  cap_drop: list("string", { default: [] }),
  /** No program gives it more privileges than it began with. */
  no_new_privileges: flag(),
  /** `default` or `unconfined`. */
  seccomp: text(),
  /** `private`: a root made for it, of `root_paths`, its own directories and its volumes; `host`: the node's files. */
  filesystem: text({ default: "host" }),
  /** Paths that it sees, by Landlock, each as `PERMS:PATH` with PERMS of r, w, c and x; empty: all. */
  unveil: list("string", { default: [] }),
  /** What is fetched before the task starts, in this order. */
  artifact: blocks({
    /** A URL of http or https. */
    source: text({ required: true }),
    /** In the task's directory: of a file with mode `file`, otherwise of a directory. */
    destination: text({ default: "local/" }),
    /** `md5:`, `sha1:`, `sha256:` or `sha512:` and hexadecimal digits. */
    checksum: text(),
    /** `any`: archives are unpacked; `file`: nothing is; `dir`: it must be an archive. */
    mode: text({ default: "any" }),
    headers: map("string", { default: {} }),
  }),
};

export type DriverConfig = ConfigOf<typeof driverFields>;
export type ExecConfig = ConfigOf<typeof taskFields>;

/** Of a driver that nobody has configured. */
export const configDefault: DriverConfig = {
  state_dir: null,
  isolation: "full",
  default_pid_mode: null,
  default_ipc_mode: null,
  allow_caps: null,
  allow_unconfined: false,
  root_paths: null,
};
