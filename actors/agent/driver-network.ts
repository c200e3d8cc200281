/**
 * A driver's part in the networks of its tasks (nomad-driver-protocol.md §5.4, CreateNetwork): most are handed a namespace that
 * the agent has made; some make one themselves, into which the agent lays the task's links.
 */
import { taskResolver } from "../../machines/discovery/resolver.ts";
import type { NetworkPlan } from "../../machines/driver/task-network/plan.ts";
import {
  CreateNetworkRequest,
  DNSConfig,
  DestroyNetworkRequest,
  HostsConfig,
  NetworkIsolationSpec,
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  PortMapping,
  Resources,
  TaskConfig,
} from "../../proto/gen/nomad.ts";
import type { Logger } from "../../runtime/ports.ts";
import { isPluginGone, type DriverClient } from "../../runtime/plugins.ts";
import type { DriverDescription, DriverPluginActor } from "./driver-plugin.ts";
import type { TaskNetworks } from "./task-networks.ts";
import { sentence } from "../sentence.ts";

/** A plugin that dies whenever it is asked to make a network, or to take it away: what there is stays then, and that is said. */
const triesMax = 5;
/** Of a host's name. */
const hostnameMax = 63;

export interface DriverNetworksOptions {
  readonly plugin: DriverPluginActor;
  /** Null: this node makes none. */
  readonly networks: TaskNetworks | null;
  readonly log: Logger;
}

export class DriverNetworks {
  readonly #options: DriverNetworksOptions;

  constructor(options: DriverNetworksOptions) {
    this.#options = options;
  }

  /** What the task is to be started in. `name`: as its host is to call itself. Rejects with why there is none; nothing is left then. */
  async make(
    plan: NetworkPlan,
    name: string,
    { capabilities }: DriverDescription,
    nameservers: readonly string[],
  ): Promise<NetworkIsolationSpec> {
    const { networks } = this.#options;
    if (networks === null || networks.problem !== null)
      throw new Error(`this node makes no networks for tasks: ${networks?.problem ?? "it has no tools for it"}`);
    const modes = capabilities?.networkIsolationModes ?? [];
    if (!modes.includes(Isolation.GROUP)) throw new Error("the driver runs its tasks in the node's own network only");
    const hostname = name.slice(0, hostnameMax);
    try {
      const ofDriver = capabilities?.mustCreateNetwork === true ? await this.#create(plan.taskId, hostname) : null;
      const network = await networks.make(plan, ofDriver, nameservers);
      return NetworkIsolationSpec.patch(ofDriver ?? NetworkIsolationSpec.create({ mode: Isolation.GROUP }), {
        path: networks.pathOf(network),
        hostsConfig: HostsConfig.create({ hostname, address: this.address(plan.taskId) ?? "" }),
      });
    } catch (error) {
      await this.remove(plan.taskId);
      throw error;
    }
  }

  /** What a task with a network of its own is to ask for names, where this node answers; else as it was asked for. */
  async resolver(asked: DNSConfig | null): Promise<DNSConfig | null> {
    const discovery = this.#options.networks?.discovery ?? null;
    if (discovery === null || !(await discovery.settled())) return asked;
    return DNSConfig.create(taskResolver(asked ?? DNSConfig.create(), discovery.address));
  }

  /** The first that the task has in a network of its own; null: it has none. */
  address(taskId: string): string | null {
    const [first] = this.#options.networks?.of(taskId)?.plan.links.flatMap(({ addresses }) => addresses) ?? [];
    return first?.address ?? null;
  }

  /** Takes away what there is; also for a task that has none. Never rejects. */
  async remove(taskId: string): Promise<void> {
    const { networks } = this.#options;
    const network = networks?.of(taskId) ?? null;
    if (networks === null || network === null) return;
    if (network.ofDriver !== null) await this.#destroy(taskId, network.ofDriver);
    await networks.remove(taskId);
  }

  async #create(allocId: string, hostname: string): Promise<NetworkIsolationSpec> {
    const isolationSpec = await this.#created(allocId, hostname);
    if (isolationSpec !== null && isolationSpec.path !== "") return isolationSpec;
    const driver = await this.#driver();
    await driver.destroyNetwork(DestroyNetworkRequest.create({ allocId, isolationSpec }));
    throw new Error("the driver made a network without a namespace");
  }

  /** One that dies under it may have made it: it is asked again, and says once more what it made. */
  async #created(allocId: string, hostname: string): Promise<NetworkIsolationSpec | null> {
    for (let count = 1; ; count += 1) {
      try {
        const driver = await this.#driver();
        return (await driver.createNetwork(CreateNetworkRequest.create({ allocId, hostname }))).isolationSpec;
      } catch (error) {
        if (!isPluginGone(error) || count === triesMax) throw error;
      }
    }
  }

  async #destroy(allocId: string, isolationSpec: NetworkIsolationSpec): Promise<void> {
    for (let count = 1; ; count += 1) {
      try {
        const driver = await this.#driver();
        await driver.destroyNetwork(DestroyNetworkRequest.create({ allocId, isolationSpec }));
        return;
      } catch (error) {
        if (isPluginGone(error) && count < triesMax) continue;
        this.#options.log.error({ error: sentence(error), task: allocId }, "a driver does not take a network away");
        return;
      }
    }
  }

  /** As soon as there is one. */
  async #driver(): Promise<DriverClient> {
    const { plugin } = this.#options;
    while (plugin.client === null) await new Promise<void>((resolve) => plugin.whenServing(resolve));
    return plugin.client;
  }
}

/** A task's configuration with what its driver has to know of its network. */
export function inNetwork(
  config: TaskConfig,
  { ports }: NetworkPlan,
  isolation: NetworkIsolationSpec,
  dns: DNSConfig | null,
): TaskConfig {
  const mappings = ports.map(({ name, nodePort, taskPort }) =>
    PortMapping.create({ label: name || String(taskPort), value: nodePort, to: taskPort }),
  );
  return TaskConfig.patch(config, {
    networkIsolationSpec: isolation,
    dns,
    resources: Resources.patch(config.resources ?? Resources.create(), { ports: mappings }),
  });
}
