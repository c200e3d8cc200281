/**
 * One container of the docker driver.
 *
 * K2: a container that the engine reports unhealthy is stopped and fails for that reason, as in a swarm.
 * K1: `exited` resolves when the container has exited and its output was passed on. While the engine is unreachable it waits:
 *     a container whose exit is not confirmed has not exited.
 */
import type {
  Attachment,
  ExecIdentity,
  ExecRequest,
  ExecSession,
  RunningTask,
  TaskExit,
  TaskSample,
} from "../../edges/plugin/server/index.ts";
import { NetworkOverride } from "../../proto/gen/nomad.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import { isAbsent, isConflict, type Engine } from "./engine.ts";
import { forgetNote, type ContainerLogs } from "./logs.ts";
import { openAttachment } from "./attachment.ts";
import { exitOf, openSession } from "./session.ts";
import { ContainerUsage } from "./usage.ts";

/** Delay between attempts to reach the engine, in milliseconds. */
const retryMs = 1_000;
const stopSignalDefault = "SIGTERM";
/** Nanoseconds; Docker's default. */
const healthIntervalDefault = 30e9;
/** Minimum interval for polling a container's health, in milliseconds. */
const healthLookMsMin = 250;
const healthLookMsMax = 5_000;
/** Time between the stop signal and the kill of an unhealthy container, in milliseconds: Docker's default. */
const unhealthyStopMs = 10_000;
/** Maximum number of quoted characters of a check's output. */
const saidMax = 200;

export interface Container {
  readonly Id: string;
  readonly Name: string;
  readonly Config: {
    readonly StopSignal?: string;
    readonly Tty?: boolean;
    readonly OpenStdin?: boolean;
    readonly Labels?: Readonly<Record<string, string>>;
    readonly Healthcheck?: { readonly Interval?: number };
  };
  readonly State: {
    readonly Status: string;
    readonly Running: boolean;
    readonly ExitCode: number;
    readonly OOMKilled: boolean;
    readonly Error: string;
    readonly StartedAt: string;
    readonly Pid: number;
    /** Absent without a health check. */
    readonly Health?: { readonly Status: string; readonly Log?: readonly { readonly Output: string }[] | null };
  };
  readonly NetworkSettings: {
    readonly SandboxKey: string;
    readonly IPAddress?: string;
    readonly Networks?: Readonly<Record<string, { readonly IPAddress: string } | null>> | null;
  };
}

interface DockerState {
  readonly containerId: string;
}

interface RunOptions {
  readonly engine: Engine;
  readonly container: Container;
  readonly logs: ContainerLogs;
  readonly noteFile: string;
  /** Whether commands may be privileged. */
  readonly allowsPrivileged: boolean;
  readonly log: Logger;
  readonly tell: (message: string) => void;
}

function healthOf({ State: { Health } }: Container): string | null {
  return Health === undefined || Health.Status === "none" || Health.Status === "" ? null : Health.Status;
}

function addressOf({ NetworkSettings: { IPAddress, Networks } }: Container): string {
  if (IPAddress !== undefined && IPAddress !== "") return IPAddress;
  return Object.values(Networks ?? {}).find((network) => (network?.IPAddress ?? "") !== "")?.IPAddress ?? "";
}

export class DockerRun implements RunningTask {
  readonly state: DockerState;
  readonly startedAtMs: number;
  readonly exited: Promise<TaskExit>;
  readonly network?: NetworkOverride;
  readonly #options: RunOptions;
  readonly #usage: ContainerUsage;
  /** The engine's health status; null without a health check. */
  #health: string | null;
  /** Why this driver stops it. K2 */
  #flaw = "";

  constructor(options: RunOptions) {
    const { container, engine } = options;
    this.#options = options;
    this.state = { containerId: container.Id };
    this.startedAtMs = Date.parse(container.State.StartedAt) || Date.now();
    this.#health = healthOf(container);
    const addr = addressOf(container);
    if (addr !== "") this.network = NetworkOverride.create({ addr });
    this.#usage = new ContainerUsage(engine, container.Id);
    this.exited = this.#end();
  }

  get #path(): string {
    return `/containers/${this.state.containerId}`;
  }

  get attributes(): Readonly<Record<string, string>> {
    const { Id, Name, State } = this.#options.container;
    return {
      container_id: Id,
      container_name: Name.replace(/^\//, ""),
      pid: String(State.Pid),
      ...(this.#health === null ? {} : { health: this.#health }),
    };
  }

  /** K1 */
  async #end(): Promise<TaskExit> {
    let isOver = false;
    if (this.#health !== null) void this.#watchHealth(() => isOver);
    const exit = await this.#ended();
    isOver = true;
    await this.#options.logs.finish();
    if (this.#flaw !== "") return { ...exit, err: this.#flaw };
    if (exit.oomKilled) this.#options.tell("killed by the kernel: it exceeded its memory limit");
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

  /** K2 */
  async #watchHealth(isOver: () => boolean): Promise<void> {
    const { container, engine, log, tell } = this.#options;
    const intervalMs = (container.Config.Healthcheck?.Interval || healthIntervalDefault) / 1e6;
    // Half the check's interval: soon enough after the engine's result.
    const lookMs = Math.min(healthLookMsMax, Math.max(healthLookMsMin, intervalMs / 2));
    while (!isOver()) {
      await new Promise((resolve) => setTimeout(resolve, lookMs));
      const found = await engine.json<Container>("GET", `${this.#path}/json`).catch((error: unknown) => {
        log.debug({ error, container: container.Id }, "cannot read a container's health");
        return null;
      });
      if (found === null || isOver()) continue;
      this.#health = healthOf(found);
      if (this.#health !== "unhealthy") continue;
      const said = (found.State.Health?.Log?.at(-1)?.Output ?? "").trim().slice(-saidMax);
      this.#flaw = `unhealthy container${said === "" ? "" : `: ${said}`}`;
      tell(this.#flaw);
      return this.stop("", unhealthyStopMs);
    }
  }

  async #kill(signal: string): Promise<void> {
    try {
      await this.#options.engine.json("POST", `${this.#path}/kill`, { query: { signal } });
    } catch (error) {
      // It has already exited.
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
    return openSession(engine, this.state.containerId, request, null, engine.endpoint.startsWith("unix:"));
  }

  execAs(request: ExecRequest, identity: ExecIdentity): Promise<ExecSession> {
    const { allowsPrivileged, engine } = this.#options;
    if (identity.privileged && !allowsPrivileged)
      throw new Error("privileged commands are not allowed on this node (the driver's allow_privileged)");
    return openSession(engine, this.state.containerId, request, identity, engine.endpoint.startsWith("unix:"));
  }

  attach(request: ExecRequest, attachment: Attachment): Promise<ExecSession> {
    const { container, engine } = this.#options;
    const { Config, Id: id } = container;
    const attached = { id, hasTerminal: Config.Tty === true, hasInput: Config.OpenStdin === true };
    return openAttachment(engine, attached, request, attachment);
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
