/**
 * A node's end of the tunnel to other nodes: keeps the kernel's routes to their tasks. machines/networks/ decides what to
 * program.
 *
 * TR1: nothing is removed before a manager has sent a complete state to this agent process, and nothing when the agent stops:
 *      connections between tasks outlive it.
 * TR2: remains of an earlier process are found in the kernel, and removed when no longer wanted.
 * TR3: the packet filter is programmed before the device is created, and lists a sender before routes to it exist.
 */
import { programmingMachine, type ProgrammingEvent } from "../../machines/networks/programming.machine.ts";
import type { NodeNetworks } from "../../machines/networks/state.ts";
import {
  isSameDevice,
  makeDevice,
  removeDevice,
  routesFound,
  tunnelDevice,
  tunnelLines,
} from "../../machines/networks/tunnel-lines.ts";
import { tunnelOf, tunnelOverhead, type TunnelPlan, type TunnelRoutes } from "../../machines/networks/tunnel-plan.ts";
import { changedTunnel, tunnelTable, wholeTunnel, withoutTunnel } from "../../machines/networks/tunnel-rules.ts";
import { interfacePrefix } from "../../machines/policy/facts.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { Random, Telemetry } from "../../runtime/ports/index.ts";
import { sentence } from "../sentence.ts";
import type { NetworkTools } from "./ports.ts";

interface TunnelPorts {
  readonly host: Host;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly tools: NetworkTools;
}

interface TunnelOptions {
  /** The agent's name, for the actor's id. */
  readonly name: string;
  readonly networks: NodeNetworks;
  /** Empty while the node has no id. */
  readonly nodeId: () => string;
}

/** The kernel's state: as programmed by this process, or unknown. */
type Programmed =
  | { readonly kind: "unknown" }
  | { readonly kind: "none" }
  | { readonly kind: "plan"; readonly plan: TunnelPlan };

export class Tunnel {
  readonly #ports: TunnelPorts;
  readonly #options: TunnelOptions;
  readonly #actor: HostedActor<typeof programmingMachine>;
  readonly #forget: () => void;
  readonly #device: string;
  readonly #table: string;
  #programmed: Programmed = { kind: "unknown" };
  #work: Promise<void> = Promise.resolve();
  /** Why some tasks are unreachable; logged when it changes. */
  #reason = "";
  #isStopped = false;

  constructor(ports: TunnelPorts, options: TunnelOptions) {
    const { host, random, tools } = ports;
    this.#ports = ports;
    this.#options = options;
    this.#device = tunnelDevice(tools.tag);
    this.#table = tunnelTable(tools.tag);
    this.#actor = host.start(programmingMachine, `tunnel/${options.name}`, undefined, {
      effects: {
        program: () => {
          this.#work = this.#program();
        },
      },
      draw: drawUpperHalf(random),
    });
    this.#forget = options.networks.onChange(() => this.#tell({ type: "facts.changed" }));
  }

  /** Resolves when all work is done. With `isOver`, no task is left and the tunnel is removed; else it stays. TR1 */
  async stop(isOver: boolean): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#forget();
    this.#actor.stop();
    await this.#work;
    if (!isOver) return;
    await this.#remove().catch((error: unknown) =>
      this.#ports.telemetry.log.error({ error: sentence(error) }, "cannot remove the tunnel to other nodes"),
    );
  }

  #tell(event: ProgrammingEvent): void {
    if (!this.#isStopped) this.#actor.send(event);
  }

  async #program(): Promise<void> {
    const { networks, nodeId } = this.#options;
    const { log, metrics } = this.#ports.telemetry;
    // TR1
    if (networks.state !== null) {
      const decision = tunnelOf(networks.state, nodeId());
      const reason = decision.kind === "impossible" ? decision.reason : "";
      if (reason !== "" && reason !== this.#reason) log.error({ reason }, "cannot reach tasks of other nodes");
      this.#reason = reason;
      const plan = decision.kind === "plan" ? decision.plan : null;
      try {
        await (plan === null ? this.#remove() : this.#bring(plan));
      } catch (error) {
        this.#programmed = { kind: "unknown" };
        log.error({ error: sentence(error) }, "cannot program the tunnel to other nodes");
        this.#tell({ type: "kernel.refused", reason: sentence(error) });
        return;
      }
      metrics
        .gauge("muster_tunnel_routes", "Addresses of other nodes' tasks to which this node has routes.")
        .set(plan?.routes.size ?? 0);
    }
    this.#tell({ type: "kernel.programmed" });
  }

  async #remove(): Promise<void> {
    const { tools } = this.#ports;
    if (this.#programmed.kind === "none") return;
    const isThere = this.#programmed.kind === "plan" || (await tools.tunnel(this.#device)) !== null;
    if (isThere) await tools.ip(removeDevice(this.#device), { goesOn: true });
    await tools.nft(withoutTunnel(this.#table));
    this.#programmed = { kind: "none" };
  }

  async #bring(plan: TunnelPlan): Promise<void> {
    const before = this.#programmed;
    this.#programmed = { kind: "unknown" };
    if (before.kind === "plan" && isSameEnd(before.plan, plan)) {
      const script = changedTunnel(before.plan, plan, this.#table);
      if (script !== null) await this.#ports.tools.nft(script);
      await this.#lead(before.plan, plan, false);
    } else {
      const has = await this.#make(plan);
      await this.#lead(has, plan, true);
    }
    this.#programmed = { kind: "plan", plan };
  }

  /** Creates the device behind its filter; resolves with the routes that already use it. TR2, TR3 */
  async #make({ device, ...plan }: TunnelPlan): Promise<TunnelRoutes> {
    const { tools } = this.#ports;
    const mtu = tools.mtu - tunnelOverhead;
    const found = await tools.tunnel(this.#device);
    const stays = found !== null && isSameDevice(found, device, mtu);
    if (found !== null && !stays) await tools.ip(removeDevice(this.#device));
    await tools.nft(wholeTunnel({ device, ...plan }, this.#table, this.#device, interfacePrefix));
    if (stays) return routesFound(found);
    await tools.ip(makeDevice(this.#device, device, mtu));
    return { peers: new Map(), routes: new Map() };
  }

  async #lead(before: TunnelRoutes, after: TunnelRoutes, anew: boolean): Promise<void> {
    const { tools } = this.#ports;
    const { meet, part, route, unroute } = tunnelLines(before, after, this.#device, anew);
    if (meet.length > 0) await tools.bridge(meet);
    if (route.length > 0) await tools.ip(route);
    if (unroute.length > 0) await tools.ip(unroute, { goesOn: true });
    if (part.length > 0) await tools.bridge(part, { goesOn: true });
  }
}

function isSameEnd({ device: a }: TunnelPlan, { device: b }: TunnelPlan): boolean {
  return a.local === b.local && a.port === b.port && a.mac === b.mac;
}
