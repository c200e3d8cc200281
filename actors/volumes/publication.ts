/** Hosts one volume on one node: has its plugin attach and detach it, and writes the result. */
import { publishRequest, unpublishRequest } from "../../machines/volumes/csi/requests.ts";
import {
  driverOf,
  pluginsNodeId,
  publicationOf,
  publicationStage,
  type PublicationStage,
} from "../../machines/volumes/csi/stages.ts";
import { publicationMachine, type PublicationContext } from "../../machines/volumes/publication.machine.ts";
import type { StatePath } from "../../machines/wait-meta.ts";
import {
  CsiControllerService,
  Volume,
  VolumePublishStatus,
  VolumePublishStatus_State as PublishState,
} from "../../proto/gen/messages.ts";
import type { HostedActor } from "../../runtime/host.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { replacement } from "../control/write.ts";
import { callPlugin, unlessUnknown } from "./csi-call.ts";
import type { CsiPlugin } from "./csi-plugin.ts";
import type { Environment } from "../environment.ts";
import { goneMeanwhile, targetOf, type VolumeParts } from "./volume.ts";
import { settled, writeVolume } from "./volume-write.ts";

const { ControllerPublishVolume, ControllerUnpublishVolume } = CsiControllerService.methods;

export class PublicationActor {
  readonly #env: Environment;
  readonly #volumeId: string;
  readonly #nodeId: string;
  readonly #parts: VolumeParts;
  readonly #actor: HostedActor<typeof publicationMachine>;
  /** The plugin's id for the node, as last reported; kept because removing the node removes it from the store. */
  #pluginsNodeId: string | null = null;
  /** The plugin's latest publish context. */
  #context: Readonly<Record<string, string>> = {};

  constructor(env: Environment, volumeId: string, nodeId: string, parts: VolumeParts) {
    this.#env = env;
    this.#volumeId = volumeId;
    this.#nodeId = nodeId;
    this.#parts = parts;
    this.#actor = env.host.start(
      publicationMachine,
      `publication/${volumeId}/${nodeId}`,
      { volumeId, nodeId, stage: this.#stage() },
      {
        effects: {
          callPublish: () => void this.#publish(),
          callUnpublish: () => void this.#unpublish(),
          writePublished: () => void this.#writePublished(),
          writeAbandoned: () => void this.#writeAbandoned(),
          writeErasure: () => void this.#writeErasure(),
          complain: ({ reason }) => void this.#complain(reason),
        },
        draw: parts.draw,
      },
    );
  }

  get context(): PublicationContext {
    return this.#actor.snapshot.context;
  }

  get state(): StatePath<typeof publicationMachine> {
    return this.#actor.snapshot.value;
  }

  get isOver(): boolean {
    return this.#actor.snapshot.status === "done";
  }

  /** The volume or the node changed. */
  look(): void {
    this.#actor.send({ type: "volume.changed", stage: this.#stage() });
  }

  pluginServes(): void {
    this.#actor.send({ type: "plugin.served" });
  }

  stop(): void {
    this.#actor.stop();
  }

  #stage(): PublicationStage {
    const { store } = this.#env;
    const volume = store.get("volume", this.#volumeId);
    const node = store.get("node", this.#nodeId);
    if (volume !== undefined) this.#pluginsNodeId = pluginsNodeId(node, driverOf(volume)) ?? this.#pluginsNodeId;
    return publicationStage(volume, this.#nodeId, node !== undefined);
  }

  /**
   * `change` gets the volume's entry for this node. It returns null to write nothing, an entry to replace it, or "gone" to
   * remove it.
   */
  async #write(change: (status: VolumePublishStatus) => VolumePublishStatus | "gone" | null): Promise<void> {
    const writing = writeVolume(this.#env, this.#volumeId, (volume) => {
      const status = publicationOf(volume, this.#nodeId);
      const next = status === null ? null : change(status);
      if (next === null) return null;
      const publishStatus = volume.publishStatus.flatMap((each) =>
        each !== status ? [each] : next === "gone" ? [] : [next],
      );
      return replacement("volume", Volume.patch(volume, { publishStatus }));
    });
    const outcome = await settled(writing, () => this.#stage());
    this.#actor.send(outcome);
  }

  async #publish(): Promise<void> {
    await this.#call(async (volume, plugin, secrets) => {
      this.#context = {};
      if (!plugin.facts.publishes) return;
      const nodeId = this.#pluginsNodeId;
      if (nodeId === null)
        throw new RpcError(
          Status.UNAVAILABLE,
          `node ${this.#nodeId} has not reported its id in storage plugin ${driverOf(volume)}: the plugin must run there too`,
        );
      const request = publishRequest(volume, nodeId, plugin.facts.publishesReadOnly, secrets);
      this.#context = (await plugin.call(ControllerPublishVolume, request)).publishContext;
    });
  }

  async #unpublish(): Promise<void> {
    await this.#call(async (volume, plugin, secrets) => {
      if (!plugin.facts.publishes) return;
      const nodeId = this.#pluginsNodeId;
      // The plugin's id of a removed node is lost. If this is the volume's last node, "unpublish from every node" does the
      // same.
      if (nodeId === null && volume.publishStatus.length > 1)
        throw new RpcError(
          Status.UNAVAILABLE,
          `node ${this.#nodeId} was removed, and the plugin's id for it is lost: waiting until no other node has the volume`,
        );
      await unlessUnknown(plugin.call(ControllerUnpublishVolume, unpublishRequest(volume, nodeId ?? "", secrets)));
    });
  }

  async #call(
    ask: (volume: Volume, plugin: CsiPlugin, secrets: Readonly<Record<string, string>>) => Promise<void>,
  ): Promise<void> {
    const volume = this.#env.store.get("volume", this.#volumeId);
    if (volume === undefined) return this.#actor.send(goneMeanwhile);
    const target = targetOf(volume, this.#parts, this.#env.store);
    const outcome = await callPlugin(target, (plugin, secrets) => ask(volume, plugin, secrets));
    this.#actor.send(outcome);
  }

  /** U2: an entry that is no longer wanted has changed its state by now, and stays unchanged. */
  #writePublished(): Promise<void> {
    return this.#write((status) =>
      status.state === PublishState.PENDING_PUBLISH
        ? VolumePublishStatus.patch(status, {
            state: PublishState.PUBLISHED,
            publishContext: this.#context,
            message: "",
          })
        : null,
    );
  }

  #writeAbandoned(): Promise<void> {
    return this.#write((status) =>
      status.state === PublishState.PENDING_NODE_UNPUBLISH
        ? VolumePublishStatus.patch(status, { state: PublishState.PENDING_UNPUBLISH })
        : null,
    );
  }

  #writeErasure(): Promise<void> {
    return this.#write((status) => (status.state === PublishState.PENDING_UNPUBLISH ? "gone" : null));
  }

  /** Writes each reason once: retries are not worth a write each. */
  async #complain(reason: string): Promise<void> {
    const { store } = this.#env;
    const known = publicationOf(store.get("volume", this.#volumeId), this.#nodeId);
    if (known === null || known.message === reason) return;
    try {
      await writeVolume(this.#env, this.#volumeId, (volume) => {
        const status = publicationOf(volume, this.#nodeId);
        if (status === null || status.message === reason || status.state === PublishState.PUBLISHED) return null;
        const next = VolumePublishStatus.patch(status, { message: reason });
        const publishStatus = volume.publishStatus.map((each) => (each === status ? next : each));
        return replacement("volume", Volume.patch(volume, { publishStatus }));
      });
    } catch (error) {
      this.#env.telemetry.log.debug(
        { err: error, volume: this.#volumeId },
        "cannot write a volume's failure to the store",
      );
    }
  }
}
