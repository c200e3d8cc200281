/**
 * The exec driver under a host other than Muster's agent: Nomad's. There `exec` is Nomad's built-in driver, which isolates its
 * tasks, and an operator who adds this driver does not want to replace that one.
 *
 * FX1: it has a different name, unless its arguments set one (`--name exec`).
 * FX2: a task without a user runs as `nobody`. Muster's agent sets a user for each task.
 */
import { TaskConfig } from "../../proto/gen/nomad.ts";
import { ownHostVariable } from "../../edges/plugin/handshake.ts";
import type { TaskRequest } from "../../edges/plugin/server/index.ts";
import type { ExecConfig } from "./fields.ts";
import { ExecPlugin } from "./plugin.ts";

const nameDefault = "muster-exec";
const namePattern = /^[A-Za-z0-9_-]{1,64}$/;
const userDefault = "nobody";

class ForeignExecPlugin extends ExecPlugin {
  override readonly name: string;

  constructor(name: string) {
    super();
    this.name = name;
  }

  /** FX2. Without root, the driver can only start tasks as its own user. */
  override start(request: TaskRequest<ExecConfig>): ReturnType<ExecPlugin["start"]> {
    const { task } = request;
    if (task.user !== "" || process.getuid?.() !== 0) return super.start(request);
    return super.start({ ...request, task: TaskConfig.patch(task, { user: userDefault }) });
  }
}

/** The driver for the host that started this process. Throws for invalid arguments. */
export function execFor(args: readonly string[], env: Readonly<Record<string, string | undefined>>): ExecPlugin {
  const [flag, name = "", ...more] = args;
  if (flag !== undefined && (flag !== "--name" || !namePattern.test(name) || more.length > 0))
    throw new Error("invalid arguments: expected only --name NAME, with at most 64 letters, digits, _ and -");
  if (env[ownHostVariable] !== undefined && flag === undefined) return new ExecPlugin();
  return new ForeignExecPlugin(flag === undefined ? nameDefault : name);
}
