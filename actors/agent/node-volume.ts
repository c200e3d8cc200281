/** Hosts one cluster volume on this node: has the plugin mount and unmount it, and reports its removal to the manager. */
import {
  nodePublishRequest,
  nodeUnpublishRequest,
  stageRequest,
  unstageRequest,
  type VolumePlaces,
} from "../../machines/volumes/csi/node-requests.ts";
import type { CallOutcome } from "../../machines/volumes/csi/calls.ts";
import type { Secrets } from "../../machines/volumes/csi/requests.ts";
import { nodeVolumeMachine } from "../../machines/volumes/node-volume.machine.ts";
import { CsiNodeService, type VolumeAssignment } from "../../proto/gen/messages.ts";
import type { Draw } from "../../lib/backoff.ts";
import type { HostedActor } from "../../runtime/host.ts";
import type { AgentPorts, NodeVolumePlaces } from "./ports.ts";
import { callPlugin, unlessUnknown } from "../volumes/csi-call.ts";
import type { CsiPlugin } from "../volumes/csi-plugin.ts";
import type { CsiPlugins } from "../volumes/csi-plugins.ts";
import { sentence } from "../sentence.ts";

const { NodeStageVolume, NodePublishVolume, NodeUnpublishVolume, NodeUnstageVolume } = CsiNodeService.methods;

export interface NodeVolumeParts {
  readonly plugins: CsiPlugins;
  readonly places: NodeVolumePlaces;
  secretData(id: string): Uint8Array | undefined;
  /** Reports to the manager that the node has released the volume; rejects without a session. */
  tell(volumeId: string): Promise<void>;
  readonly onReady: (volumeId: string) => void;
  readonly draw: Draw;
}

export class NodeVolumeActor {
  readonly #ports: Pick<AgentPorts, "host" | "telemetry">;
  readonly #parts: NodeVolumeParts;
  readonly #actor: HostedActor<typeof nodeVolumeMachine>;
  #assignment: VolumeAssignment;

  constructor(
    ports: Pick<AgentPorts, "host" | "telemetry">,
    assignment: VolumeAssignment,
    state: { readonly isWanted: boolean; readonly isUsed: boolean },
    parts: NodeVolumeParts,
  ) {
    this.#ports = ports;
    this.#parts = parts;
    this.#assignment = assignment;
    this.#actor = ports.host.start(
      nodeVolumeMachine,
      `node-volume/${assignment.id}`,
      { volumeId: assignment.id, ...state },
      {
        effects: {
          stage: () =>
            void this.#call(async (plugin, places, secrets) => {
              if (plugin.facts.stages)
                await plugin.call(NodeStageVolume, stageRequest(this.#assignment, places, secrets));
            }),
          publish: () =>
            void this.#call(async (plugin, places, secrets) => {
              const request = nodePublishRequest(this.#assignment, places, plugin.facts.stages, secrets);
              await plugin.call(NodePublishVolume, request);
            }),
          unpublish: () =>
            void this.#call((plugin, places) =>
              unlessUnknown(plugin.call(NodeUnpublishVolume, nodeUnpublishRequest(this.#assignment, places))),
            ),
          unstage: () =>
            void this.#call(async (plugin, places) => {
              if (plugin.facts.stages)
                await unlessUnknown(plugin.call(NodeUnstageVolume, unstageRequest(this.#assignment, places)));
              await parts.places.remove(assignment.id);
            }),
          tell: () => void this.#tell(),
          // Deferred: tasks check the state to which this effect belongs, which is entered once it has returned.
          announce: () => void Promise.resolve().then(() => this.isReady && parts.onReady(assignment.id)),
        },
        draw: parts.draw,
      },
    );
  }

  get isReady(): boolean {
    const snapshot = this.#actor.snapshot;
    return snapshot.status === "active" && snapshot.hasTag("ready");
  }

  get isOver(): boolean {
    return this.#actor.snapshot.status === "done";
  }

  want(assignment: VolumeAssignment): void {
    this.#assignment = assignment;
    this.#actor.send({ type: "volume.wanted" });
  }

  unwant(): void {
    this.#actor.send({ type: "volume.unwanted" });
  }

  use(isUsed: boolean): void {
    this.#actor.send({ type: "users.changed", isUsed });
  }

  wayOpened(): void {
    this.#actor.send({ type: "path.restored" });
  }

  stop(): void {
    this.#actor.stop();
  }

  async #call(ask: (plugin: CsiPlugin, places: VolumePlaces, secrets: Secrets) => Promise<void>): Promise<void> {
    const { driver, id, secrets: wanted } = this.#assignment;
    const { places, plugins, secretData } = this.#parts;
    const target = { plugins, name: driver?.name ?? "", secrets: wanted, secretData };
    this.#answer(await callPlugin(target, async (plugin, secrets) => ask(plugin, await places.make(id), secrets)));
  }

  async #tell(): Promise<void> {
    try {
      await this.#parts.tell(this.#assignment.id);
      this.#answer({ type: "call.answered" });
    } catch (error) {
      this.#answer({ type: "call.failed", reason: sentence(error), failing: "unclear" });
    }
  }

  #answer(outcome: CallOutcome): void {
    if (outcome.type === "call.failed" && this.#actor.snapshot.status === "active")
      this.#ports.telemetry.log.warn(
        { volume: this.#assignment.id, reason: outcome.reason },
        "a step of a cluster volume failed; retrying",
      );
    this.#actor.send(outcome);
  }
}
