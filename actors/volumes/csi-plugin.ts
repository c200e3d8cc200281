/** Hosts the link to one storage plugin: dials it, identifies it and forwards calls. */
import { csiTimes } from "../../machines/volumes/csi/calls.ts";
import {
  csiPluginMachine,
  noFacts,
  type CsiPluginEvent,
  type PluginFacts,
} from "../../machines/volumes/csi-plugin.machine.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  CsiControllerGetCapabilitiesRequest,
  CsiControllerService,
  CsiControllerServiceCapability_RPC_Type as ControllerAbility,
  CsiGetPluginCapabilitiesRequest,
  CsiGetPluginInfoRequest,
  CsiIdentityService,
  CsiNodeGetCapabilitiesRequest,
  CsiNodeGetInfoRequest,
  CsiNodeService,
  CsiNodeServiceCapability_RPC_Type as NodeAbility,
  CsiPluginCapability_Service_Type as PluginAbility,
  CsiProbeRequest,
} from "../../proto/gen/messages.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { Random, Telemetry } from "../../runtime/ports/index.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import { sentence } from "../sentence.ts";

const identity = CsiIdentityService.methods;
/** The CSI service in use: managers call the controller, agents the plugin on their node. */
export type CsiSide = "controller" | "node";

interface CsiPluginParts {
  readonly name: string;
  readonly side: CsiSide;
  readonly host: Host;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly sockets: CsiSockets;
  /** Called each time the plugin starts serving. */
  readonly onServing: () => void;
}

export class CsiPlugin {
  readonly #parts: CsiPluginParts;
  readonly #actor: HostedActor<typeof csiPluginMachine>;
  #channel: RpcChannel | null = null;
  /** Number of the current link; events of earlier links are ignored. */
  #links = 0;
  #stopped = false;

  constructor(parts: CsiPluginParts) {
    this.#parts = parts;
    this.#actor = parts.host.start(
      csiPluginMachine,
      `csi-plugin/${parts.side}/${parts.name}`,
      { name: parts.name },
      {
        effects: {
          dial: () => void this.#dial(),
          identify: () => void this.#identify(),
          close: () => this.#close(),
          // Deferred: the chart enters `serving` only after this effect has returned.
          announce: () => void Promise.resolve().then(() => this.#announce()),
        },
        // Half of the delay is fixed and half random, so that managers waiting for one plugin do not retry together.
        draw: drawUpperHalf(parts.random),
      },
    );
  }

  get facts(): PluginFacts {
    return this.isServing ? this.#actor.snapshot.context.facts : noFacts;
  }

  /**
   * The plugin's latest description, kept while it is unreachable; null before the first answer or when it is no longer listed.
   */
  get lastFacts(): PluginFacts | null {
    const { context, value } = this.#actor.snapshot;
    return value === "absent" || context.facts === noFacts ? null : context.facts;
  }

  get isServing(): boolean {
    return !this.#stopped && this.#actor.snapshot.hasTag("serving");
  }

  /** Why it is not serving, for people. */
  get trouble(): string {
    const { context, value } = this.#actor.snapshot;
    if (value === "absent") return "it has no socket on this machine";
    return context.reason === "" ? "connecting" : context.reason;
  }

  listed(isListed: boolean): void {
    this.#send({ type: isListed ? "plugin.listed" : "plugin.unlisted" });
  }

  /** Rejects with RpcError. */
  call<Request, Response>(method: MethodDescriptor<Request, Response>, request: Request): Promise<Response> {
    if (this.#channel === null || !this.isServing) {
      return Promise.reject(
        new RpcError(Status.UNAVAILABLE, `cannot reach storage plugin ${this.#parts.name}: ${this.trouble}`),
      );
    }
    return this.#channel.unary(method, request, { timeoutMs: csiTimes.callMs });
  }

  stop(): void {
    this.#stopped = true;
    this.#close();
    this.#actor.stop();
  }

  #send(event: CsiPluginEvent): void {
    if (!this.#stopped) this.#actor.send(event);
  }

  async #dial(): Promise<void> {
    this.#links += 1;
    const link = this.#links;
    const isCurrent = (): boolean => link === this.#links && !this.#stopped;
    try {
      const channel = await this.#parts.sockets.dial(this.#parts.name);
      if (!isCurrent()) {
        channel.close();
        return;
      }
      this.#channel = channel;
      channel.onClosed(() => {
        if (isCurrent()) this.#send({ type: "link.lost", reason: "the plugin closed the connection" });
      });
      this.#send({ type: "link.opened" });
    } catch (error) {
      if (isCurrent()) this.#send({ type: "link.lost", reason: sentence(error) });
    }
  }

  #announce(): void {
    if (!this.isServing) return;
    const { name, onServing, telemetry } = this.#parts;
    const { pluginName, version } = this.facts;
    telemetry.log.info({ plugin: name, pluginName, version }, "storage plugin is serving");
    onServing();
  }

  #close(): void {
    this.#links += 1;
    this.#channel?.close();
    this.#channel = null;
  }

  async #identify(): Promise<void> {
    const channel = this.#channel;
    const link = this.#links;
    if (channel === null) return;
    try {
      const facts = await factsOf(channel, this.#parts.side);
      if (link === this.#links) this.#send({ type: "plugin.identified", facts });
    } catch (error) {
      if (link === this.#links) this.#send({ type: "link.lost", reason: sentence(error) });
    }
  }
}

async function factsOf(channel: RpcChannel, side: CsiSide): Promise<PluginFacts> {
  const ask = <Request, Response>(method: MethodDescriptor<Request, Response>, request: Request): Promise<Response> =>
    channel.unary(method, request, { timeoutMs: csiTimes.callMs });
  const { ready } = await ask(identity.Probe, CsiProbeRequest.create());
  if (ready !== null && !ready.value) throw new RpcError(Status.UNAVAILABLE, "the plugin reports that it is not ready");
  const { name, vendorVersion } = await ask(identity.GetPluginInfo, CsiGetPluginInfoRequest.create());
  const facts: PluginFacts = { ...noFacts, pluginName: name, version: vendorVersion };
  if (side === "node") {
    const { NodeGetCapabilities, NodeGetInfo } = CsiNodeService.methods;
    const { capabilities } = await ask(NodeGetCapabilities, CsiNodeGetCapabilitiesRequest.create());
    const info = await ask(NodeGetInfo, CsiNodeGetInfoRequest.create());
    return {
      ...facts,
      stages: capabilities.some(({ rpc }) => rpc?.type === NodeAbility.STAGE_UNSTAGE_VOLUME),
      nodeId: info.nodeId,
      maxVolumesPerNode: info.maxVolumesPerNode,
      topology: info.accessibleTopology?.segments ?? null,
    };
  }
  const { capabilities } = await ask(identity.GetPluginCapabilities, CsiGetPluginCapabilitiesRequest.create());
  if (!capabilities.some(({ service }) => service?.type === PluginAbility.CONTROLLER_SERVICE)) return facts;
  const answer = await ask(
    CsiControllerService.methods.ControllerGetCapabilities,
    CsiControllerGetCapabilitiesRequest.create(),
  );
  const abilities = new Set(answer.capabilities.map(({ rpc }) => rpc?.type));
  return {
    ...facts,
    makesVolumes: abilities.has(ControllerAbility.CREATE_DELETE_VOLUME),
    publishes: abilities.has(ControllerAbility.PUBLISH_UNPUBLISH_VOLUME),
    publishesReadOnly: abilities.has(ControllerAbility.PUBLISH_READONLY),
  };
}
