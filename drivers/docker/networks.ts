/**
 * The networks that the driver creates: each is a container that only holds a network namespace, which other containers share.
 * The host configures the namespace.
 *
 * DN1: a network's container is found by its label as well as by its id: if its creator died before it could report the
 *      container, a later call finds it, to use or to remove it.
 * DN2: a failed creation leaves nothing behind.
 */
import { existsSync } from "node:fs";
import {
  CreateNetworkResponse,
  NetworkIsolationSpec,
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  type CreateNetworkRequest,
  type DestroyNetworkRequest,
} from "../../proto/gen/nomad.ts";
import { allocLabel, sandboxLabel } from "./container.ts";
import { isAbsent, isConflict, type Engine } from "./engine.ts";
import type { DriverConfig } from "./fields.ts";
import type { Images } from "./images.ts";
import { pauseImage, pausePath } from "./pause.ts";
import type { Container } from "./run.ts";

const networkLabel = "io.muster.network";
/** Engines disable IPv6 in containers without an IPv6 network; absent if the kernel lacks IPv6. */
const ipv6Setting = "net.ipv6.conf.all.disable_ipv6";

interface NetworksParts {
  readonly config: DriverConfig;
  readonly engine: Engine;
  readonly images: Images;
}

export class DockerNetworks {
  readonly #parts: NetworksParts;

  constructor(parts: NetworksParts) {
    this.#parts = parts;
  }

  async create({ allocId, hostname }: CreateNetworkRequest): Promise<CreateNetworkResponse> {
    const { engine } = this.#parts;
    const name = `muster-network-${allocId.replaceAll(/[^a-zA-Z0-9_.-]/g, "-")}`;
    const hasV6 = existsSync(`/proc/sys/${ipv6Setting.replaceAll(".", "/")}`);
    let created = true;
    const body = {
      ...(await this.#holder()),
      ...(hostname === "" ? {} : { Hostname: hostname }),
      Labels: { [networkLabel]: allocId, [allocLabel]: allocId },
      HostConfig: {
        NetworkMode: "none",
        // Hosts restart tasks in an existing network.
        RestartPolicy: { Name: "unless-stopped" },
        ReadonlyRootfs: true,
        CapDrop: ["ALL"],
        SecurityOpt: ["no-new-privileges"],
        LogConfig: { Type: "none", Config: {} },
        Sysctls: hasV6 ? { [ipv6Setting]: "0" } : {},
      },
    };
    await engine.json("POST", "/containers/create", { query: { name }, body }).catch((error: unknown) => {
      if (!isConflict(error)) throw error;
      created = false;
    });
    const { Id, NetworkSettings } = await this.#started(name).catch(async (error: unknown) => {
      await this.#remove(name); // DN2
      throw error;
    });
    const labels = { [sandboxLabel]: Id, ...(hostname === "" ? {} : { docker_sandbox_hostname: hostname }) };
    const isolationSpec = NetworkIsolationSpec.create({
      mode: Isolation.GROUP,
      path: NetworkSettings.SandboxKey,
      labels,
    });
    return CreateNetworkResponse.create({ isolationSpec, created });
  }

  /** Rejects if the engine fails; a missing network is not an error. DN1 */
  async destroy({ allocId, isolationSpec }: DestroyNetworkRequest): Promise<void> {
    const id = isolationSpec?.labels[sandboxLabel];
    for (const each of id === undefined ? await this.#madeFor(allocId) : [id]) await this.#remove(each);
  }

  async #started(name: string): Promise<Container> {
    const { engine } = this.#parts;
    await engine.json("POST", `/containers/${name}/start`, { timeoutMs: null });
    return engine.json<Container>("GET", `/containers/${name}/json`);
  }

  async #remove(container: string): Promise<void> {
    const query = { force: true, v: true };
    await this.#parts.engine.json("DELETE", `/containers/${container}`, { query }).catch((error: unknown) => {
      if (!isAbsent(error)) throw error;
    });
  }

  async #madeFor(allocId: string): Promise<readonly string[]> {
    if (allocId === "") return [];
    const query = { all: true, filters: JSON.stringify({ label: [`${networkLabel}=${allocId}`] }) };
    const found = await this.#parts.engine.json<{ readonly Id: string }[]>("GET", "/containers/json", { query });
    return found.map(({ Id }) => Id);
  }

  /** Image and command; pulls or builds the image first. */
  async #holder(): Promise<object> {
    const { config, engine, images } = this.#parts;
    const command = config.infra_command.length === 0 ? null : config.infra_command;
    if (config.infra_image !== null && config.infra_image !== "") {
      const asIs = { auth: null, registry_auth: null, force_pull: false, refresh: false };
      await images.need(config.infra_image, asIs, () => {});
      return { Image: config.infra_image, ...(command === null ? {} : { Cmd: command }) };
    }
    const { Arch } = await engine.version();
    const image = pauseImage(Arch);
    if (image === null)
      throw new Error(`cannot create a network on ${Arch}: set infra_image in the driver's configuration`);
    await images.make(image.name, image.archive);
    return { Image: image.name, Cmd: command ?? [pausePath] };
  }
}
