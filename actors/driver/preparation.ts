/** Prepares a task for its start by a driver plugin: directories, configuration, mounts and network. */
import { planMounts } from "../../machines/driver/mounts.ts";
import { DriverCapabilities_MountConfigs as MountConfigs, type TaskConfig } from "../../proto/gen/nomad.ts";
import { sentence } from "../sentence.ts";
import type { AgentPlugins, DriverTask, NodeFacts } from "../agent/ports.ts";
import { inNetwork, type DriverNetworks } from "./network.ts";
import type { DriverDescription, DriverPluginActor } from "./plugin.ts";
import {
  chrootMountsOf,
  encodedConfig,
  fileMountsOf,
  isolationOf,
  mountsOf,
  taskConfigOf,
  taskNameOf,
  wantsOf,
  type DriverWants,
} from "./task-config.ts";

export interface Prepared {
  readonly kind: "prepared";
  readonly wants: DriverWants;
  readonly config: TaskConfig;
}

type Preparation = Prepared | { readonly kind: "refused"; readonly reason: string };

interface DriverPreparationOptions {
  readonly plugin: DriverPluginActor;
  readonly plugins: AgentPlugins;
  readonly facts: NodeFacts;
  readonly networks: DriverNetworks;
}

export class DriverPreparation {
  readonly #options: DriverPreparationOptions;

  constructor(options: DriverPreparationOptions) {
    this.#options = options;
  }

  /** Waits until the driver is available. Removes everything again if the task is refused. */
  async prepare(task: DriverTask): Promise<Preparation> {
    const wants = wantsOf(task);
    if (wants.kind === "refused") return refused(wants.reason);
    const description = await this.#description();
    if ((wants.spec.health?.command ?? []).length > 0 && description.capabilities?.exec === false)
      return refused("the driver runs no commands in its tasks, which the health check requires");
    const isolation = isolationOf(description);
    const { agent, cgroups, homes } = this.#options.plugins;
    const name = taskNameOf(task);
    const hasOutput = description.capabilities?.disableLogCollection !== true;
    const outcome = await homes.prepare(task, wants.spec, {
      name,
      isolation,
      hasOutput,
      isBare: wants.container !== null,
    });
    if (outcome.kind === "refused") return refused(outcome.reason);
    const { home } = outcome;
    const variables = { "node.unique.id": task.nodeId, "node.unique.name": task.nodeHostname, ...home.env };
    const encoded = encodedConfig(wants.config, description, variables);
    if (encoded.kind === "refused") {
      await homes.end(task.id);
      return refused(encoded.reason);
    }
    const planned = planMounts(wants.spec.mounts, task.volumes ?? []);
    if (planned.length > 0 && description.capabilities?.mountConfigs === MountConfigs.NO_MOUNTS) {
      await homes.end(task.id);
      return refused("the driver does not support mounts");
    }
    const { facts } = this.#options;
    // A task is started only once (PD1), so its id identifies its start.
    const id = `${task.id}/${name}/00000001`;
    try {
      const mounts = [
        ...mountsOf(planned, await homes.mount(task.id, planned), isolation),
        ...fileMountsOf(home, name, wants.container?.files ?? []),
        ...(isolation === "chroot" ? chrootMountsOf(await homes.chrootMounts(task.id)) : []),
      ];
      const cgroup = wants.container === null ? ((await cgroups?.make(task.id, name)) ?? "") : "";
      const driverConfig = encoded.bytes;
      const config = taskConfigOf(task, { id, home, wants, mounts, driverConfig, agent, facts, cgroup });
      return { kind: "prepared", wants, config: await this.#withNetwork(task, config, wants, description) };
    } catch (error) {
      await homes.end(task.id);
      return refused(sentence(error));
    }
  }

  /** Waits for the driver's description. */
  async #description(): Promise<DriverDescription> {
    const { plugin } = this.#options;
    if (plugin.description === null) await new Promise<void>((resolve) => plugin.whenServing(resolve));
    return plugin.description as DriverDescription;
  }

  /** Rejects with the reason if it cannot have a network. */
  async #withNetwork(
    task: DriverTask,
    config: TaskConfig,
    { container }: DriverWants,
    description: DriverDescription,
  ): Promise<TaskConfig> {
    const { network = { kind: "none" } } = task;
    switch (network.kind) {
      case "none":
        return config;
      case "refused":
        throw new Error(network.reason);
      case "plan": {
        const hostname = container?.hostname || (task.slot === 0 ? config.name : `${config.name}-${task.slot}`);
        const asked = config.dns?.servers ?? [];
        const { networks } = this.#options;
        const isolation = await networks.make(network.plan, hostname, description, asked);
        return inNetwork(config, network.plan, isolation, await networks.resolver(network.plan, config.dns));
      }
    }
  }
}

function refused(reason: string): Preparation {
  return { kind: "refused", reason };
}
