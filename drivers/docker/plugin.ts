/**
 * The docker task driver: containers, by the socket of a Docker Engine, or of what speaks its API.
 *
 * D1: a task has one container, whose name follows from the task: a start whose answer was lost finds that one.
 * D2: a container that could not be started is removed again.
 */
import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  pluginLog,
  retryable,
  type Driver,
  type Fingerprint,
  type TaskRequest,
} from "../../edges/plugin/server/index.ts";
import {
  CreateNetworkResponse,
  DriverCapabilities_FSIsolation,
  NetworkIsolationSpec,
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  type CreateNetworkRequest,
  type DestroyNetworkRequest,
  type NomadDriverConfig,
} from "../../proto/gen/nomad.ts";
import { containerName, containerOf, sandboxLabel, taskLabel } from "./container.ts";
import { Engine, EngineError, isAbsent, isConflict } from "./engine.ts";
import { driverFields, taskFields, type DockerConfig, type DriverConfig } from "./fields.ts";
import { Images } from "./images.ts";
import { ContainerLogs } from "./logs.ts";
import { writeNameFiles } from "./name-files.ts";
import { DockerRun, type Container } from "./run.ts";

const networkLabel = "io.muster.network";

type Request = TaskRequest<DockerConfig>;

interface Parts {
  readonly config: DriverConfig;
  readonly engine: Engine;
  readonly images: Images;
}

interface EngineInfo {
  readonly Plugins: {
    readonly Network?: readonly string[] | null;
    readonly Volume?: readonly string[] | null;
    readonly Log?: readonly string[] | null;
  };
}

/** Every key as the schema fills it: a host found again after this process was replaced says nothing. */
const configDefault: DriverConfig = {
  endpoint: "unix:///var/run/docker.sock",
  allow_privileged: false,
  infra_image: "registry.k8s.io/pause:3.9",
  infra_command: [],
  pull_timeout: 300,
  state_dir: null,
};

function stateFolder({ state_dir: named }: DriverConfig): string {
  if (named !== null && named !== "") return named;
  const uid = process.getuid?.() ?? 0;
  if (uid === 0) return "/run/muster-driver-docker";
  return join(process.env["XDG_RUNTIME_DIR"] ?? tmpdir(), `muster-driver-docker-${uid}`);
}

/** What another try may do away with: an engine that is not there now. */
function told(error: unknown): Error {
  if (error instanceof EngineError && (error.status === 0 || error.status >= 500)) return retryable(error.message);
  return error as Error;
}

function partsOf(config: DriverConfig): Parts {
  const engine = new Engine(config.endpoint);
  return { config, engine, images: new Images(engine, config.pull_timeout * 1_000) };
}

export class DockerPlugin implements Driver<typeof driverFields, typeof taskFields> {
  readonly name = "docker";
  readonly version = "0.1.0";
  readonly config = driverFields;
  readonly task = taskFields;
  readonly capabilities = {
    sendSignals: true,
    exec: true,
    fsIsolation: DriverCapabilities_FSIsolation.IMAGE,
    networkIsolationModes: [Isolation.HOST, Isolation.GROUP, Isolation.TASK, Isolation.NONE],
    mustCreateNetwork: true,
  };
  readonly #log = pluginLog("docker");
  #parts: Parts = partsOf(configDefault);

  configure(config: DriverConfig, agent: NomadDriverConfig | null): void {
    const parts = partsOf(config);
    if (agent === null) return parts.engine.close();
    this.#parts = parts;
  }

  async fingerprint(): Promise<Fingerprint> {
    try {
      const { engine } = this.#parts;
      const { ApiVersion, Arch, Os, Version } = await engine.version();
      const { Plugins } = await engine.json<EngineInfo>("GET", "/info");
      return {
        health: "healthy",
        description: `Docker ${Version}`,
        attributes: {
          "driver.docker.version": Version,
          "driver.docker.api": ApiVersion,
          "driver.docker.platform": `${Os}/${Arch}`,
          "driver.docker.networks": (Plugins.Network ?? []).join(","),
          "driver.docker.volumes": (Plugins.Volume ?? []).join(","),
          "driver.docker.logs": (Plugins.Log ?? []).join(","),
          "driver.docker.privileged": this.#parts.config.allow_privileged,
        },
      };
    } catch (error) {
      const code = ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code;
      const health = code === "ENOENT" ? "undetected" : "unhealthy";
      return { health, description: (error as Error).message };
    }
  }

  #noteFile(name: string): string {
    const folder = stateFolder(this.#parts.config);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    return join(folder, name);
  }

  async start(request: Request): Promise<DockerRun> {
    const { config, engine, images } = this.#parts;
    const body = containerOf(request, config, writeNameFiles(request));
    try {
      await images.need(request.config.image, request.config, request.tell);
      const id = await this.#create(request, body);
      try {
        // An answer of 304, where it runs already, is none of an error.
        await engine.json("POST", `/containers/${id}/start`, { timeoutMs: null });
        return await this.#run(request, id);
      } catch (error) {
        await this.#remove(id); // D2
        throw error;
      }
    } catch (error) {
      throw told(error);
    }
  }

  /** D1 */
  async #create(request: Request, body: object): Promise<string> {
    const { engine } = this.#parts;
    const name = containerName(request);
    try {
      const made = await engine.json<{ readonly Id: string }>("POST", "/containers/create", { query: { name }, body });
      return made.Id;
    } catch (error) {
      if (!isConflict(error)) throw error;
      const found = await engine.json<Container>("GET", `/containers/${name}/json`);
      if (found.Config.Labels?.[taskLabel] !== request.id) throw error;
      return found.Id;
    }
  }

  async #remove(id: string): Promise<void> {
    await this.#parts.engine.json("DELETE", `/containers/${id}`, { query: { force: true, v: true } }).catch((error) => {
      if (!isAbsent(error)) this.#log.warn({ error, container: id }, "cannot remove a container");
    });
  }

  async #run(request: Request, id: string): Promise<DockerRun> {
    const { engine } = this.#parts;
    const { log, task, tell } = request;
    const container = await engine.json<Container>("GET", `/containers/${id}/json`);
    const noteFile = this.#noteFile(containerName(request));
    const hasTerminal = container.Config.Tty === true;
    const logs = new ContainerLogs({ engine, containerId: id, task, hasTerminal, noteFile, log });
    return new DockerRun({ engine, container, logs, noteFile, log, tell });
  }

  async recover(request: Request, state: unknown): Promise<DockerRun> {
    const { containerId } = (state ?? {}) as { readonly containerId?: unknown };
    if (typeof containerId !== "string" || !/^[0-9a-f]+$/.test(containerId))
      throw new Error("the handle's state is not of this driver");
    return this.#run(request, containerId);
  }

  /** A container that does nothing but hold the network that a group's tasks share. */
  async createNetwork({ allocId, hostname }: CreateNetworkRequest): Promise<CreateNetworkResponse> {
    const { config, engine, images } = this.#parts;
    const asIs = { auth: null, registry_auth: null, force_pull: false, refresh: false };
    await images.need(config.infra_image, asIs, () => {});
    const name = `muster-network-${allocId.replaceAll(/[^a-zA-Z0-9_.-]/g, "-")}`;
    let created = true;
    const body = {
      Image: config.infra_image,
      ...(config.infra_command.length === 0 ? {} : { Cmd: config.infra_command }),
      ...(hostname === "" ? {} : { Hostname: hostname }),
      Labels: { [networkLabel]: allocId },
      HostConfig: { NetworkMode: "none", RestartPolicy: { Name: "unless-stopped" } },
    };
    await engine.json("POST", "/containers/create", { query: { name }, body }).catch((error: unknown) => {
      if (!isConflict(error)) throw error;
      created = false;
    });
    await engine.json("POST", `/containers/${name}/start`, { timeoutMs: null });
    const { Id, NetworkSettings } = await engine.json<Container>("GET", `/containers/${name}/json`);
    const labels = { [sandboxLabel]: Id, ...(hostname === "" ? {} : { docker_sandbox_hostname: hostname }) };
    const isolationSpec = NetworkIsolationSpec.create({
      mode: Isolation.GROUP,
      path: NetworkSettings.SandboxKey,
      labels,
    });
    return CreateNetworkResponse.create({ isolationSpec, created });
  }

  async destroyNetwork({ isolationSpec }: DestroyNetworkRequest): Promise<void> {
    const id = isolationSpec?.labels[sandboxLabel];
    if (id !== undefined) await this.#remove(id);
  }
}
