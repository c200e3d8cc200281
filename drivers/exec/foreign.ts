/**
 * The exec driver under a host that is not Muster's agent: Nomad's. There `exec` is the driver that Nomad has built in, which
 * isolates its tasks, and an operator who adds this one does not mean to put it in that one's place.
 *
 * FX1: it has a name of its own, unless its arguments say otherwise (`--name exec`).
 * FX2: a task that names no user runs as `nobody`. Muster's agent names one for each task.
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

  /** FX2. One that does not run as root can start tasks as itself alone. */
  override start(request: TaskRequest<ExecConfig>): ReturnType<ExecPlugin["start"]> {
    const { task } = request;
    if (task.user !== "" || process.getuid?.() !== 0) return super.start(request);
    return super.start({ ...request, task: TaskConfig.patch(task, { user: userDefault }) });
  }
}

/** The driver for whoever has started this process. Throws with a sentence for arguments that it does not take. */
export function execFor(args: readonly string[], env: Readonly<Record<string, string | undefined>>): ExecPlugin {
  const [flag, name = "", ...more] = args;
  if (flag !== undefined && (flag !== "--name" || !namePattern.test(name) || more.length > 0))
    throw new Error("muster-driver-exec takes only --name NAME, with up to 64 letters, digits, _ and -");
  if (env[ownHostVariable] !== undefined && flag === undefined) return new ExecPlugin();
  return new ForeignExecPlugin(flag === undefined ? nameDefault : name);
}
