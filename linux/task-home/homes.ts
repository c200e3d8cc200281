/**
 * The directories of tasks that run on driver plugins, laid out as Nomad's drivers expect them, and the output that tasks write
 * to pipes in them.
 *
 *   <directory>/<task id>/            the allocation's: 0755
 *       alloc/{data,tmp,logs}         shared by what drivers start for the task; the pipes are in logs
 *       <name>/{local,tmp}            the task's own; `secrets` and `configs` link to files in memory (MemoryFiles)
 *       <name>/{bin,etc,usr,…}        the node's, read-only, for a driver that wants a chroot (chroot.ts)
 *       mounts/                       memory, and volumes without a name (mounts.ts)
 *       output/                       stdout, stderr and their rotated files, for the agent only
 *       .name, .output                what a later run of the agent has to know
 *
 * TH1: a task shares no writable files with the agent: output and records are out of its reach.
 * TH2: a task's secrets are in memory, accessible only to its user, and removed once the task has stopped.
 */
import { chmod, mkdir, readFile, rm, stat, symlink } from "node:fs/promises";
import { join } from "node:path";
import type {
  DriverTask,
  HomeOutcome,
  PlannedMount,
  FileIsolation,
  HomeWants,
  OutputReader,
  OutputRequest,
  TaskHome,
  TaskHomes,
} from "../../actors/agent/ports.ts";
import { DriverSpec } from "../../proto/gen/messages.ts";
import type { Clock, Logger } from "../../runtime/ports/index.ts";
import { replaceFile } from "../../runtime/system/whole-file.ts";
import { filesOf } from "./contents.ts";
import { MemoryFiles, memoryRoots } from "./memory-files.ts";
import { lastOutput, outputBytesMax } from "../output/kept-files.ts";
import { OutputFiles } from "../output/output-reader.ts";
import { OutputClient } from "../output/client.ts";
import type { TaskOutput } from "../output/collector.ts";
import { taskUser, type TaskUser, type TaskUserPolicy } from "../task-users.ts";
import { environmentOf, type AgentEnvironment, type TaskDirectories } from "./environment.ts";
import { placeChroot, unplaceChroot } from "./chroot.ts";
import { placeMounts, unplaceMounts } from "./mounts.ts";
import { PipeMaker } from "./pipes.ts";

const fileKinds = ["secrets", "configs"] as const;
/** Time to drain a task's pipes after its exit: Nomad's. */
const drainMs = 2_000;

interface TaskHomesOptions {
  /** Absolute; created if absent. */
  readonly directory: string;
  /** Path of the output collector's socket: at most 107 bytes. */
  readonly outputSocket: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Source of the tasks' PATH, HOME and LANG. */
  readonly environment: AgentEnvironment;
  readonly users: TaskUserPolicy;
  readonly outputBytesMax?: number;
  /** Where secrets and configs may be kept in memory, best first; absolute. */
  readonly memoryRoots?: readonly string[];
}

export class TaskHomeDirectories implements TaskHomes {
  readonly #options: TaskHomesOptions;
  readonly #files: MemoryFiles;
  readonly #client: OutputClient;
  readonly #pipes = new PipeMaker();

  constructor(options: TaskHomesOptions) {
    const { directory, environment, log, outputSocket } = options;
    this.#options = options;
    const roots = options.memoryRoots ?? memoryRoots(environment["XDG_RUNTIME_DIR"]);
    this.#files = new MemoryFiles({ directory, log, roots });
    this.#client = new OutputClient(outputSocket, log);
    this.#files
      .sweep((taskId) => stat(this.#home(taskId)).then(Boolean, () => false))
      .catch((error: unknown) => log.warn({ error }, "cannot remove secrets and configs of removed tasks"));
  }

  async prepare(task: DriverTask, spec: DriverSpec, wants: HomeWants): Promise<HomeOutcome> {
    const home = this.#home(task.id);
    const user = this.userOf(spec.user, wants.isolation);
    if (user.kind === "refused") return user;
    const environment = environmentOf(task, DriverSpec.patch(spec, { user: user.name }), {
      agent: this.#options.environment,
      name: wants.name,
      isImage: wants.isolation === "image",
      isBare: wants.isBare,
      directories: directoriesOf(home, wants),
    });
    if (environment.kind === "refused") return environment;
    const contents = filesOf(task, spec, environment.env);
    if (contents.kind === "refused") return contents;
    try {
      const output = await this.#make(task.id, wants);
      await this.#files.write(task.id, contents.files, user.owner);
      if (wants.isolation === "chroot") await this.#makeRoot(task.id, wants.name);
      else await this.#linkFiles(task.id, join(home, wants.name));
      if (output !== null) await this.#client.open(output);
      const { stderr, stdout } = output?.pipes ?? { stdout: "/dev/null", stderr: "/dev/null" };
      const ready: TaskHome = {
        allocDir: home,
        stdoutPath: stdout,
        stderrPath: stderr,
        env: environment.env,
        user: user.name,
      };
      return { kind: "ready", home: ready };
    } catch (error) {
      await this.#removeFiles(task.id);
      await this.#unmount(task.id);
      return { kind: "refused", reason: `cannot create the task's directories: ${(error as Error).message}` };
    }
  }

  mount(taskId: string, mounts: readonly PlannedMount[]): Promise<readonly string[]> {
    return placeMounts(mounts, { directory: this.#options.directory, home: this.#home(taskId) });
  }

  async resume(taskId: string): Promise<void> {
    const output = await this.#outputOf(taskId);
    if (output !== null) await this.#client.open(output);
  }

  output(taskId: string, request: OutputRequest): OutputReader {
    return new OutputFiles(join(this.#home(taskId), "output"), request, this.#options.clock);
  }

  async chrootMounts(taskId: string): Promise<readonly { readonly source: string; readonly target: string }[]> {
    const files = await this.#files.of(taskId);
    return [
      { source: join(this.#home(taskId), "alloc"), target: "/alloc" },
      ...fileKinds.map((kind) => ({ source: join(files, kind), target: `/${kind}` })),
    ];
  }

  lastOutput(taskId: string): Promise<string> {
    return lastOutput(join(this.#home(taskId), "output"));
  }

  async end(taskId: string): Promise<void> {
    await this.#drain(taskId);
    await this.#removeFiles(taskId);
    await this.#unmount(taskId);
  }

  async remove(taskId: string): Promise<void> {
    await this.#drain(taskId);
    // Before the directory: its existence tells a later run that there may be files.
    await this.#files.remove(taskId);
    await unplaceMounts(this.#home(taskId));
    await unplaceChroot(this.#home(taskId));
    await rm(this.#home(taskId), { recursive: true, force: true });
  }

  /** A failed unmount is retried when the task is forgotten. */
  async #unmount(taskId: string): Promise<void> {
    const home = this.#home(taskId);
    await Promise.all([unplaceMounts(home), unplaceChroot(home)]).catch((error: unknown) =>
      this.#options.log.error({ error, task: taskId }, "cannot unmount a task's mounts"),
    );
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  /** In an image, users are the image's, so no user of the node owns its secrets. */
  userOf(user: string, isolation: FileIsolation): TaskUser {
    return isolation === "image" ? { kind: "user", name: user, owner: null } : taskUser(user, this.#options.users);
  }

  #home(taskId: string): string {
    return join(this.#options.directory, taskId);
  }

  /** Creates the directories and pipes; null for a task whose driver keeps its output. */
  async #make(taskId: string, { hasOutput, name }: HomeWants): Promise<TaskOutput | null> {
    const home = this.#home(taskId);
    await mkdir(this.#options.directory, { recursive: true, mode: 0o711 });
    await directory(home, 0o755);
    const [shared, own, logs] = [join(home, "alloc"), join(home, name), join(home, "alloc", "logs")];
    // Sticky: the task cannot rename or remove what the agent has created in it. TH1
    await directory(shared, 0o1777);
    await directory(logs, 0o755);
    await directory(join(shared, "data"), 0o777);
    await directory(join(shared, "tmp"), 0o1777);
    await directory(own, 0o777);
    await directory(join(own, "local"), 0o777);
    await directory(join(own, "tmp"), 0o1777);
    await directory(join(home, "output"), 0o700);
    if (!hasOutput) return null;
    const pipes = { stdout: join(logs, `.${name}.stdout.fifo`), stderr: join(logs, `.${name}.stderr.fifo`) };
    await this.#pipes.make(Object.values(pipes));
    const bytesMax = this.#options.outputBytesMax ?? outputBytesMax;
    const output: TaskOutput = { taskId, directory: join(home, "output"), pipes, bytesMax };
    await replaceFile(join(home, ".output"), JSON.stringify(output));
    return output;
  }

  /** The driver mounts its files, since links would lead out of the chroot. */
  async #makeRoot(taskId: string, name: string): Promise<void> {
    const own = join(this.#home(taskId), name);
    for (const kind of fileKinds) await directory(join(own, kind), 0o755);
    await placeChroot(own, join(this.#home(taskId), ".empty"));
  }

  async #linkFiles(taskId: string, own: string): Promise<void> {
    const files = await this.#files.of(taskId);
    for (const kind of fileKinds) {
      await rm(join(own, kind), { recursive: true, force: true });
      await symlink(join(files, kind), join(own, kind));
    }
  }

  async #outputOf(taskId: string): Promise<TaskOutput | null> {
    try {
      return JSON.parse(await readFile(join(this.#home(taskId), ".output"), "utf8")) as TaskOutput;
    } catch {
      return null; // it was never prepared, or is already removed
    }
  }

  async #drain(taskId: string): Promise<void> {
    if ((await this.#outputOf(taskId)) === null) return;
    try {
      await this.#client.drain(taskId, drainMs);
      await rm(join(this.#home(taskId), ".output"), { force: true });
    } catch (error) {
      this.#options.log.warn({ error, task: taskId }, "the end of a task's output may be lost");
    }
  }

  /** TH2. A failed removal is retried when the task is forgotten. */
  async #removeFiles(taskId: string): Promise<void> {
    await this.#files
      .remove(taskId)
      .catch((error: unknown) =>
        this.#options.log.error({ error, task: taskId }, "cannot remove the secrets and configs of a task"),
      );
  }
}

/** As the task sees them (§6.3): in a container, the driver mounts them at the paths of its environment. */
function directoriesOf(home: string, { isolation, name }: HomeWants): TaskDirectories {
  const of = (own: string, shared: string) => (directory: string) =>
    join(directory === "alloc" ? shared : own, directory);
  const at = isolation === "none" ? of(join(home, name), home) : of("/", "/");
  return {
    alloc: at("alloc"),
    local: at("local"),
    secrets: at("secrets"),
    configs: at("configs"),
    volumes: at("volumes"),
  };
}

/** Sets exactly this mode, regardless of the umask. */
async function directory(path: string, mode: number): Promise<void> {
  await mkdir(path, { recursive: true });
  await chmod(path, mode);
}
