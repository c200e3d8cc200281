/**
 * One container of the docker driver.
 *
 * K1: `exited` resolves when the container has ended and its output was handed over. An engine that goes away and comes back is
 *     waited for: as long as nobody knows how the container ended, it has not.
 */
import type { ExecRequest, ExecSession, RunningTask, TaskExit, TaskSample } from "../../edges/plugin/server/index.ts";
import { NetworkOverride } from "../../proto/gen/nomad.ts";
import type { Logger } from "../../runtime/ports.ts";
import { isAbsent, isConflict, type Engine } from "./engine.ts";
import { forgetNote, type ContainerLogs } from "./logs.ts";
import { exitOf, openSession } from "./session.ts";
import { ContainerUsage } from "./usage.ts";

/** Between two tries to reach an engine that is gone. */
const retryMs = 1_000;
const stopSignalDefault = "SIGTERM";

export interface Container {
  readonly Id: string;
  readonly Name: string;
  readonly Config: { readonly StopSignal?: string; readonly Labels?: Readonly<Record<string, string>> };
  readonly State: {
    readonly Status: string;
    readonly Running: boolean;
    readonly ExitCode: number;
    readonly OOMKilled: boolean;
    readonly Error: string;
    readonly StartedAt: string;
  };
  readonly NetworkSettings: {
    readonly SandboxKey: string;
    readonly IPAddress?: string;
    readonly Networks?: Readonly<Record<string, { readonly IPAddress: string } | null>> | null;
  };
}

export interface DockerState {
  readonly containerId: string;
}

export interface RunOptions {
  readonly engine: Engine;
  readonly container: Container;
  readonly logs: ContainerLogs;
  readonly noteFile: string;
  readonly log: Logger;
  readonly tell: (message: string) => void;
}

function addressOf({ NetworkSettings: { IPAddress, Networks } }: Container): string {
  if (IPAddress !== undefined && IPAddress !== "") return IPAddress;
  return Object.values(Networks ?? {}).find((network) => (network?.IPAddress ?? "") !== "")?.IPAddress ?? "";
}

export class DockerRun implements RunningTask {
  readonly state: DockerState;
  readonly startedAtMs: number;
  readonly exited: Promise<TaskExit>;
  readonly attributes: Readonly<Record<string, string>>;
  readonly network?: NetworkOverride;
  readonly #options: RunOptions;
  readonly #usage: ContainerUsage;

  constructor(options: RunOptions) {
    const { container, engine } = options;
    this.#options = options;
    this.state = { containerId: container.Id };
    this.startedAtMs = Date.parse(container.State.StartedAt) || Date.now();
    this.attributes = { container_id: container.Id, container_name: container.Name.replace(/^\//, "") };
    const addr = addressOf(container);
    if (addr !== "") this.network = NetworkOverride.create({ addr });
    this.#usage = new ContainerUsage(engine, container.Id);
    this.exited = this.#end();
  }

  get #path(): string {
    return `/containers/${this.state.containerId}`;
  }

  /** K1 */
  async #end(): Promise<TaskExit> {
    const exit = await this.#ended();
    await this.#options.logs.finish();
    if (exit.oomKilled) this.#options.tell("killed by the kernel: it used more memory than it may");
    return exit;
  }

  async #ended(): Promise<TaskExit> {
    const { engine, log } = this.#options;
    for (;;) {
      try {
        await engine.json("POST", `${this.#path}/wait`, { timeoutMs: null });
        const { State } = await engine.json<Container>("GET", `${this.#path}/json`);
        if (!State.Running) return { ...exitOf(State.ExitCode, State.OOMKilled), err: State.Error };
      } catch (error) {
        if (isAbsent(error)) return { ...exitOf(-1), err: "the container was removed" };
        log.debug({ error, container: this.state.containerId }, "cannot wait for a container");
      }
      await new Promise((resolve) => setTimeout(resolve, retryMs));
    }
  }

  async #kill(signal: string): Promise<void> {
    try {
      await this.#options.engine.json("POST", `${this.#path}/kill`, { query: { signal } });
    } catch (error) {
      // It has ended already.
      if (!isAbsent(error) && !isConflict(error)) throw error;
    }
  }

  async stop(name: string, timeoutMs: number): Promise<void> {
    const own = this.#options.container.Config.StopSignal ?? "";
    const timers: NodeJS.Timeout[] = [];
    const kill = async (): Promise<void> => {
      try {
        await this.#kill("SIGKILL");
      } catch (error) {
        this.#options.log.warn({ error, container: this.state.containerId }, "cannot kill a container");
        timers.push(setTimeout(() => void kill(), retryMs));
      }
    };
    if (timeoutMs <= 0) await kill();
    else {
      timers.push(setTimeout(() => void kill(), timeoutMs));
      await this.#kill(name || own || stopSignalDefault).catch((error: unknown) => {
        this.#options.log.warn({ error, container: this.state.containerId }, "cannot signal a container");
      });
    }
    await this.exited;
    for (const timer of timers) clearTimeout(timer);
  }

  async signal(signal: string): Promise<void> {
    await this.#options.engine.json("POST", `${this.#path}/kill`, { query: { signal } });
  }

  stats(): Promise<TaskSample> {
    return this.#usage.sample();
  }

  exec(request: ExecRequest): Promise<ExecSession> {
    const { engine } = this.#options;
    return openSession(engine, this.state.containerId, request, engine.endpoint.startsWith("unix:"));
  }

  async destroy(): Promise<void> {
    await this.#options.engine
      .json("DELETE", this.#path, { query: { force: true, v: true } })
      .catch((error: unknown) => {
        if (!isAbsent(error)) throw error;
      });
    forgetNote(this.#options.noteFile);
  }
}
