/**
 * The docker task driver: containers, over the socket of a Docker Engine or of anything that implements its API.
 *
 * D1: a task has one container, whose name is derived from the task: after a lost answer, the next start finds it.
 * D2: a container that could not be started is removed.
 */
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
  DriverCapabilities_FSIsolation,
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  type CreateNetworkRequest,
  type CreateNetworkResponse,
  type DestroyNetworkRequest,
  type NomadDriverConfig,
} from "../../proto/gen/nomad.ts";
import { ownFolder } from "../../linux/own-folder.ts";
import { containerName, containerOf, taskLabel } from "./container.ts";
import { Engine, EngineError, isAbsent, isConflict } from "./engine.ts";
import { driverFields, taskFields, type DockerConfig, type DriverConfig } from "./fields.ts";
import { Images } from "./images.ts";
import { ContainerLogs } from "./logs.ts";
import { writeNameFiles } from "./name-files.ts";
import { DockerNetworks } from "./networks.ts";
import { DockerRun, type Container } from "./run.ts";

type Request = TaskRequest<DockerConfig>;

interface Parts {
  readonly config: DriverConfig;
  readonly engine: Engine;
  readonly images: Images;
  readonly networks: DockerNetworks;
}

interface EngineInfo {
  readonly Plugins: {
    readonly Network?: readonly string[] | null;
    readonly Volume?: readonly string[] | null;
    readonly Log?: readonly string[] | null;
  };
}

/** Defaults of the schema: a host that reattaches after this process was replaced sends no configuration. */
const configDefault: DriverConfig = {
  endpoint: "unix:///var/run/docker.sock",
  allow_privileged: false,
  infra_image: null,
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

/** Marks errors that a retry may fix: an engine that is unreachable or fails. */
function classified(error: unknown): Error {
  if (error instanceof EngineError && (error.status === 0 || error.status >= 500)) return retryable(error.message);
  return error as Error;
}

function partsOf(config: DriverConfig): Parts {
  const engine = new Engine(config.endpoint);
  const images = new Images(engine, config.pull_timeout * 1_000);
  return { config, engine, images, networks: new DockerNetworks({ config, engine, images }) };
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
    return join(ownFolder(stateFolder(this.#parts.config)), name);
  }

  async start(request: Request): Promise<DockerRun> {
    const { config, engine, images } = this.#parts;
    const body = containerOf(request, config, writeNameFiles(request));
    try {
      await images.need(request.config.image, request.config, request.tell);
      const id = await this.#create(request, body);
      try {
        // Status 304, for a container that already runs, is not an error.
        await engine.json("POST", `/containers/${id}/start`, { timeoutMs: null });
        return await this.#run(request, id);
      } catch (error) {
        await this.#remove(id); // D2
        throw error;
      }
    } catch (error) {
      throw classified(error);
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
    const { config, engine } = this.#parts;
    const { log, task, tell } = request;
    const container = await engine.json<Container>("GET", `/containers/${id}/json`);
    const noteFile = this.#noteFile(containerName(request));
    const hasTerminal = container.Config.Tty === true;
    const logs = new ContainerLogs({ engine, containerId: id, task, hasTerminal, noteFile, log });
    const allowsPrivileged = config.allow_privileged;
    return new DockerRun({ engine, container, logs, noteFile, allowsPrivileged, log, tell });
  }

  async recover(request: Request, state: unknown): Promise<DockerRun> {
    const { containerId } = (state ?? {}) as { readonly containerId?: unknown };
    if (typeof containerId !== "string" || !/^[0-9a-f]+$/.test(containerId))
      throw new Error("the handle was not created by this driver");
    return this.#run(request, containerId);
  }

  async createNetwork(request: CreateNetworkRequest): Promise<CreateNetworkResponse> {
    try {
      return await this.#parts.networks.create(request);
    } catch (error) {
      throw classified(error);
    }
  }

  async destroyNetwork(request: DestroyNetworkRequest): Promise<void> {
    try {
      await this.#parts.networks.destroy(request);
    } catch (error) {
      throw classified(error);
    }
  }
}
