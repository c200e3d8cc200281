/** What the exec driver, and a task of it, can be told. */
import { list, number, text, type ConfigOf } from "../../edges/plugin/server/index.ts";

export const driverFields = {
  /** Where the driver writes down what becomes of its tasks; must be empty after the machine has started anew, as /run is. */
  state_dir: text(),
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
};

export type DriverConfig = ConfigOf<typeof driverFields>;
export type ExecConfig = ConfigOf<typeof taskFields>;
