/** Hosts the lifecycle of one cluster volume: has its plugin create and delete it, and writes the result. */
import type { CallOutcome } from "../../machines/volumes/csi/calls.ts";
import { createRequest, deleteRequest, infoByName, infoOf } from "../../machines/volumes/csi/requests.ts";
import { driverOf, volumeStage, type VolumeStage } from "../../machines/volumes/csi/stages.ts";
import { volumeMachine, type VolumeContext } from "../../machines/volumes/volume.machine.ts";
import type { StatePath } from "../../machines/wait-meta.ts";
import { CsiControllerService, Volume, VolumeInfo, type Operation } from "../../proto/gen/messages.ts";
import type { Draw } from "../../lib/backoff.ts";
import type { HostedActor } from "../../runtime/host.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import { removal, replacement } from "../control/write.ts";
import { callPlugin, unlessUnknown, type CallTarget } from "./csi-call.ts";
import type { CsiPlugins } from "./csi-plugins.ts";
import type { Environment } from "../environment.ts";
import { settled, writeVolume } from "./volume-write.ts";

const { CreateVolume, DeleteVolume } = CsiControllerService.methods;

/** The volume was force-removed meanwhile; the next look at the store notices it. */
export const goneMeanwhile: CallOutcome = { type: "call.failed", reason: "the volume was removed", failing: "unclear" };

/** Only for the leader, which has every secret. */
export function targetOf(
  volume: Volume,
  { isTermCurrent, plugins }: Pick<VolumeParts, "isTermCurrent" | "plugins">,
  store: Store,
): CallTarget {
  return {
    plugins,
    mayCall: isTermCurrent,
    name: driverOf(volume),
    secrets: volume.spec?.secrets ?? [],
    secretData: (id) => store.get("secret", id)?.spec?.data,
  };
}

export interface VolumeParts {
  readonly plugins: CsiPlugins;
  /** Whether the volume is assigned to a task that has not terminated. */
  hasUsers(volumeId: string): boolean;
  /** Whether this manager still leads. */
  readonly isTermCurrent: () => boolean;
  readonly draw: Draw;
}

export class VolumeActor {
  readonly #env: Environment;
  readonly #id: string;
  readonly #parts: VolumeParts;
  readonly #actor: HostedActor<typeof volumeMachine>;
  /** The plugin's latest answer. */
  #made = VolumeInfo.create();

  constructor(env: Environment, id: string, parts: VolumeParts) {
    this.#env = env;
    this.#id = id;
    this.#parts = parts;
    this.#actor = env.host.start(
      volumeMachine,
      `volume/${id}`,
      { volumeId: id, stage: this.#stage() },
      {
        effects: {
          writeAsked: () => void this.#writeAsked(),
          callCreate: () => void this.#create(),
          writeCreated: () => void this.#writeCreated(),
          callDelete: () => void this.#delete(),
          writeRemoval: () => void this.#writeRemoval(),
        },
        draw: parts.draw,
      },
    );
  }

  get context(): VolumeContext {
    return this.#actor.snapshot.context;
  }

  get state(): StatePath<typeof volumeMachine> {
    return this.#actor.snapshot.value;
  }

  /** To be called when the object or its users changed. */
  look(): void {
    this.#actor.send({ type: "volume.changed", stage: this.#stage() });
  }

  pluginServes(): void {
    this.#actor.send({ type: "plugin.served" });
  }

  stop(): void {
    this.#actor.stop();
  }

  #stage(): VolumeStage {
    return volumeStage(this.#env.store.get("volume", this.#id), this.#parts.hasUsers(this.#id));
  }

  async #write(change: (volume: Volume) => Operation | null): Promise<void> {
    const outcome = await settled(writeVolume(this.#env, this.#id, change), () => this.#stage());
    this.#actor.send(outcome);
  }

  #writeAsked(): Promise<void> {
    return this.#write((volume) =>
      volume.volumeInfo === null
        ? replacement("volume", Volume.patch(volume, { volumeInfo: VolumeInfo.create() }))
        : null,
    );
  }

  async #create(): Promise<void> {
    const volume = this.#env.store.get("volume", this.#id);
    if (volume === undefined) return this.#actor.send(goneMeanwhile);
    const outcome = await callPlugin(targetOf(volume, this.#parts, this.#env.store), async (served, secrets) => {
      if (!served.facts.makesVolumes) {
        this.#made = infoByName(volume);
        return;
      }
      const { volume: made } = await served.call(CreateVolume, createRequest(volume, secrets));
      if (made === null || made.volumeId === "")
        throw new RpcError(Status.INTERNAL, "the plugin reported success but returned no volume id");
      this.#made = infoOf(made);
    });
    this.#actor.send(outcome);
  }

  #writeCreated(): Promise<void> {
    return this.#write((volume) =>
      (volume.volumeInfo?.volumeId ?? "") === ""
        ? replacement("volume", Volume.patch(volume, { volumeInfo: this.#made }))
        : null,
    );
  }

  async #delete(): Promise<void> {
    const volume = this.#env.store.get("volume", this.#id);
    if (volume === undefined) return this.#actor.send(goneMeanwhile);
    const outcome = await callPlugin(targetOf(volume, this.#parts, this.#env.store), async (served, secrets) => {
      if (served.facts.makesVolumes) await unlessUnknown(served.call(DeleteVolume, deleteRequest(volume, secrets)));
    });
    this.#actor.send(outcome);
  }

  #writeRemoval(): Promise<void> {
    return this.#write((volume) => (volume.pendingDelete ? removal("volume", this.#id) : null));
  }
}
