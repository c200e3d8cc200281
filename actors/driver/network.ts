/**
 * A driver's part in the networks of its tasks (nomad-driver-protocol.md §5.4, CreateNetwork): most get a namespace that the
 * agent has created; some create one themselves, to which the agent adds the task's links.
 *
 * DW1: a network that a driver may have created is destroyed by the driver, retried until it succeeds: until then the task's
 *      network stays recorded, in this agent process or a later one.
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
import type { Clock, Logger, TimerHandle } from "../../runtime/ports/index.ts";
import { isPluginGone, type DriverClient } from "../../runtime/ports/plugins.ts";
import type { DriverDescription, DriverPluginActor } from "./plugin.ts";
import { retryMs, type TaskNetworks } from "../agent/task-networks.ts";
import { sentence } from "../sentence.ts";

/** Attempts for a plugin that dies on each call; then it is an ordinary failure. */
const triesMax = 5;
/** Maximum length of a host name. */
const hostnameMax = 63;

interface DriverNetworksOptions {
  readonly plugin: DriverPluginActor;
  /** Null: this node creates none. */
  readonly networks: TaskNetworks | null;
  readonly log: Logger;
  readonly clock: Clock;
}

export class DriverNetworks {
  readonly #options: DriverNetworksOptions;
  /** Timers of retries. */
  readonly #timers = new Set<TimerHandle>();

  constructor(options: DriverNetworksOptions) {
    this.#options = options;
  }

  /** Creates the network in which to start the task. `name`: its host name. Rejects with the reason; nothing is left then. */
  async make(
    plan: NetworkPlan,
    name: string,
    { capabilities }: DriverDescription,
    nameservers: readonly string[],
  ): Promise<NetworkIsolationSpec> {
    const { networks } = this.#options;
    if (networks === null || networks.problem !== null)
      throw new Error(`this node creates no networks for tasks: ${networks?.problem ?? "it lacks the tools"}`);
    const modes = capabilities?.networkIsolationModes ?? [];
    if (!modes.includes(Isolation.GROUP)) throw new Error("the driver runs its tasks only in the node's own network");
    const hostname = name.slice(0, hostnameMax);
    try {
      const isOfDriver = capabilities?.mustCreateNetwork === true;
      if (isOfDriver) await networks.ask(plan);
      const ofDriver = isOfDriver ? await this.#create(plan.taskId, hostname) : null;
      const network = await networks.make(plan, ofDriver, nameservers);
      return NetworkIsolationSpec.patch(ofDriver ?? NetworkIsolationSpec.create({ mode: Isolation.GROUP }), {
        // A plugin started by an earlier agent process may not see this one's mounts.
        path: await networks.pathFor(network, this.#options.plugin.pid),
        hostsConfig: HostsConfig.create({ hostname, address: this.address(plan.taskId) ?? "" }),
      });
    } catch (error) {
      const removed = this.remove(plan.taskId);
      // Not awaited for a plugin that keeps dying.
      if (!isPluginGone(error)) await removed;
      throw error;
    }
  }

  /** The name servers of a task with its own network: this node's if it answers, else as requested. */
  async resolver(plan: NetworkPlan, asked: DNSConfig | null): Promise<DNSConfig | null> {
    const address = (await this.#options.networks?.discovery?.addressFor(plan)) ?? null;
    return address === null ? asked : DNSConfig.create(taskResolver(asked ?? DNSConfig.create(), address));
  }

  /** The task's first address in its own network; null: it has none. */
  address(taskId: string): string | null {
    const [first] = this.#options.networks?.of(taskId)?.plan.links.flatMap(({ addresses }) => addresses) ?? [];
    return first?.address ?? null;
  }

  /** Removes the task's network, if any. Never rejects. */
  async remove(taskId: string): Promise<void> {
    const { networks } = this.#options;
    const network = networks?.of(taskId) ?? null;
    if (networks === null || network === null) return;
    if (network.ofDriver !== null) await this.#takenAway(taskId, network.ofDriver);
    await networks.remove(taskId);
  }

  /** Cancels all retries. */
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
        log.error({ error: sentence(error), task: taskId }, "a driver cannot destroy a network");
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
      // A driver that dies during the call may have created it: it is called again, and returns it again.
      const isolationSpec = await this.#asking((driver) => createdBy(driver, allocId, hostname));
      if (isolationSpec !== null && isolationSpec.path !== "") return isolationSpec;
    } catch (error) {
      // A driver that refuses has created nothing.
      if (!isPluginGone(error)) await this.#options.networks?.remove(allocId);
      throw error;
    }
    throw new Error("the driver created a network without a namespace");
  }

  /** The network that a driver created after a call without an answer; null: none. A repeated call returns it. */
  async #made(allocId: string): Promise<NetworkIsolationSpec | null> {
    try {
      return await this.#asking((driver) => createdBy(driver, allocId, ""));
    } catch (error) {
      if (isPluginGone(error)) throw error;
      return null;
    }
  }

  /** Retries if the plugin dies during the call. */
  async #asking<Result>(ask: (driver: DriverClient) => Promise<Result>): Promise<Result> {
    for (let count = 1; ; count += 1) {
      try {
        return await ask(await this.#driver());
      } catch (error) {
        if (!isPluginGone(error) || count === triesMax) throw error;
      }
    }
  }

  /** Waits for the driver. */
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

/** A task's configuration with its network's settings. */
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
