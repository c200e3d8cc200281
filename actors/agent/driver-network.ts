/**
 * A driver's part in the networks of its tasks (nomad-driver-protocol.md §5.4, CreateNetwork): most are handed a namespace that
 * the agent has made; some make one themselves, into which the agent lays the task's links.
 *
 * DW1: what a driver may have made is taken away by it, as often as that has to be asked for: until then the task's network is not
 *      forgotten, in this life of the agent or a later one.
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
import type { Clock, Logger, TimerHandle } from "../../runtime/ports.ts";
import { isPluginGone, type DriverClient } from "../../runtime/plugins.ts";
import type { DriverDescription, DriverPluginActor } from "./driver-plugin.ts";
import { retryMs, type TaskNetworks } from "./task-networks.ts";
import { sentence } from "../sentence.ts";

/** A plugin that dies whenever it is asked for something: then it is a failure like another. */
const triesMax = 5;
/** Of a host's name. */
const hostnameMax = 63;

export interface DriverNetworksOptions {
  readonly plugin: DriverPluginActor;
  /** Null: this node makes none. */
  readonly networks: TaskNetworks | null;
  readonly log: Logger;
  readonly clock: Clock;
}

export class DriverNetworks {
  readonly #options: DriverNetworksOptions;
  /** Of what is to be tried again. */
  readonly #timers = new Set<TimerHandle>();

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
      const isOfDriver = capabilities?.mustCreateNetwork === true;
      if (isOfDriver) await networks.ask(plan);
      const ofDriver = isOfDriver ? await this.#create(plan.taskId, hostname) : null;
      const network = await networks.make(plan, ofDriver, nameservers);
      return NetworkIsolationSpec.patch(ofDriver ?? NetworkIsolationSpec.create({ mode: Isolation.GROUP }), {
        // A plugin of an agent's earlier life may not see what this one mounts.
        path: await networks.pathFor(network, this.#options.plugin.pid),
        hostsConfig: HostsConfig.create({ hostname, address: this.address(plan.taskId) ?? "" }),
      });
    } catch (error) {
      const removed = this.remove(plan.taskId);
      // Of a plugin that dies all the time nobody knows when.
      if (!isPluginGone(error)) await removed;
      throw error;
    }
  }

  /** What a task with a network of its own is to ask for names, where this node answers; else as it was asked for. */
  async resolver(plan: NetworkPlan, asked: DNSConfig | null): Promise<DNSConfig | null> {
    const address = (await this.#options.networks?.discovery?.addressFor(plan)) ?? null;
    return address === null ? asked : DNSConfig.create(taskResolver(asked ?? DNSConfig.create(), address));
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
    if (network.ofDriver !== null) await this.#takenAway(taskId, network.ofDriver);
    await networks.remove(taskId);
  }

  /** Tries nothing again from now on. */
  close(): void {
    for (const timer of this.#timers) this.#options.clock.clearTimeout(timer);
  }

  /** DW1 */
  async #takenAway(taskId: string, made: NetworkIsolationSpec | "asked"): Promise<void> {
    const { clock, log } = this.#options;
    for (;;) {
      try {
        const isolationSpec = made === "asked" ? await this.#made(taskId) : made;
        if (isolationSpec === null) return;
        const request = DestroyNetworkRequest.create({ allocId: taskId, isolationSpec });
        await this.#asking((driver) => driver.destroyNetwork(request));
        return;
      } catch (error) {
        log.error({ error: sentence(error), task: taskId }, "a driver does not take a network away");
      }
      await new Promise<void>((resolve) => {
        const timer = clock.setTimeout(() => {
          this.#timers.delete(timer);
          resolve();
        }, retryMs);
        this.#timers.add(timer);
      });
    }
  }

  async #create(allocId: string, hostname: string): Promise<NetworkIsolationSpec> {
    try {
      // One that dies under it may have made it: it is asked again, and says once more what it made.
      const isolationSpec = await this.#asking((driver) => createdBy(driver, allocId, hostname));
      if (isolationSpec !== null && isolationSpec.path !== "") return isolationSpec;
    } catch (error) {
      // A driver that refuses has made nothing.
      if (!isPluginGone(error)) await this.#options.networks?.remove(allocId);
      throw error;
    }
    throw new Error("the driver made a network without a namespace");
  }

  /** What a driver that was asked for it has made; null: nothing. It says it when it is asked once more. */
  async #made(allocId: string): Promise<NetworkIsolationSpec | null> {
    try {
      return await this.#asking((driver) => createdBy(driver, allocId, ""));
    } catch (error) {
      if (isPluginGone(error)) throw error;
      return null;
    }
  }

  /** Again where the plugin dies under it. */
  async #asking<Result>(ask: (driver: DriverClient) => Promise<Result>): Promise<Result> {
    for (let count = 1; ; count += 1) {
      try {
        return await ask(await this.#driver());
      } catch (error) {
        if (!isPluginGone(error) || count === triesMax) throw error;
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

async function createdBy(
  driver: DriverClient,
  allocId: string,
  hostname: string,
): Promise<NetworkIsolationSpec | null> {
  return (await driver.createNetwork(CreateNetworkRequest.create({ allocId, hostname }))).isolationSpec;
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
