/** The cluster volumes of one node: one actor for each assigned volume, and the tasks that use them. */
import type { VolumePlaces } from "../../machines/volumes/csi/node-requests.ts";
import type { Secret, Task, VolumeAssignment } from "../../proto/gen/messages.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { noCsiSockets } from "../../runtime/ports/csi-sockets.ts";
import type { AgentPorts, NodeVolumePlaces, TaskVolume } from "./ports.ts";
import { CsiPlugins } from "../volumes/csi-plugins.ts";
import type { Running } from "../environment.ts";
import { NodeVolumeActor, type NodeVolumeParts } from "./node-volume.ts";

/** Makes the call; rejects as the channel does. */
type SendUnpublished = (volumeId: string) => Promise<unknown>;

interface NodeVolumesOptions {
  /** Secrets currently assigned to this node. */
  readonly secrets: ReadonlyMap<string, Secret>;
  /** Called when the plugins in the node's description have changed. */
  readonly onPlugins: () => void;
}

/** Without plugins, no volume is ever mounted. */
const noPlaces: NodeVolumePlaces = {
  make: () => Promise.reject(new RpcError(Status.UNAVAILABLE, "this node has no storage plugins")),
  remove: () => Promise.resolve(),
};

interface Waiting {
  readonly task: Task;
  readonly resolve: (volumes: readonly TaskVolume[]) => void;
}

export class NodeVolumes implements Running {
  readonly #ports: AgentPorts;
  readonly #parts: NodeVolumeParts;
  readonly #actors = new Map<string, NodeVolumeActor>();
  /** Tasks by volume: those that have it and have not ended. */
  readonly #users = new Map<string, Set<string>>();
  readonly #waiting = new Map<string, Waiting>();
  #send: SendUnpublished | null = null;

  constructor(ports: AgentPorts, { onPlugins, secrets }: NodeVolumesOptions) {
    this.#ports = ports;
    const random = ports.random.fork("volumes");
    const plugins = new CsiPlugins({
      ...ports,
      side: "node",
      random: random.fork("plugins"),
      sockets: ports.csi?.sockets ?? noCsiSockets,
      onServing: () => {
        onPlugins();
        this.#wayOpened();
      },
      onUnlisted: onPlugins,
    });
    this.#parts = {
      plugins,
      places: ports.csi?.places ?? noPlaces,
      secretData: (id) => secrets.get(id)?.spec?.data,
      tell: (id) => this.#tell(id),
      onReady: () => this.#serveWaiting(),
      draw: drawUpperHalf(random),
    };
  }

  get plugins(): CsiPlugins {
    return this.#parts.plugins;
  }

  /** To be called when a session is established. */
  attach(send: SendUnpublished): void {
    this.#send = send;
    this.#wayOpened();
  }

  detach(): void {
    this.#send = null;
  }

  assign(assignment: VolumeAssignment): void {
    const known = this.#live(assignment.id);
    if (known !== undefined) known.want(assignment);
    else this.#start(assignment, true);
  }

  /** Also for a volume unknown to this agent process: an earlier one may have mounted it. */
  remove(assignment: VolumeAssignment): void {
    const known = this.#live(assignment.id);
    if (known !== undefined) known.unwant();
    else this.#start(assignment, false);
  }

  /** The task uses, or may use, its volumes until `release`: they were assigned now or in an earlier agent process. */
  hold(task: Task): void {
    for (const { id } of task.volumes) {
      const users = this.#users.get(id) ?? new Set<string>();
      this.#users.set(id, users.add(task.id));
      this.#live(id)?.use(true);
    }
  }

  release(taskId: string): void {
    this.#waiting.delete(taskId);
    for (const [id, users] of this.#users) {
      if (!users.delete(taskId) || users.size > 0) continue;
      this.#users.delete(id);
      this.#live(id)?.use(false);
    }
  }

  /** Resolves when all volumes of the task are mounted; never if it is released before. M1 */
  async whenReady(task: Task): Promise<readonly TaskVolume[]> {
    if (task.volumes.length === 0) return [];
    const { promise, resolve } = Promise.withResolvers<readonly TaskVolume[]>();
    this.#waiting.set(task.id, { task, resolve });
    this.#serveWaiting();
    return promise;
  }

  /** The task's volumes with their paths. */
  volumesOf(task: Task, places: ReadonlyMap<string, VolumePlaces>): readonly TaskVolume[] {
    return task.volumes.map(({ id, source, target }) => ({ source, target, path: places.get(id)?.target ?? "" }));
  }

  stop(): void {
    for (const actor of this.#actors.values()) actor.stop();
    this.#actors.clear();
    this.#waiting.clear();
    this.#parts.plugins.stop();
  }

  #live(id: string): NodeVolumeActor | undefined {
    const actor = this.#actors.get(id);
    if (actor?.isOver !== true) return actor;
    actor.stop();
    this.#actors.delete(id);
    return undefined;
  }

  #start(assignment: VolumeAssignment, isWanted: boolean): void {
    const state = { isWanted, isUsed: this.#users.has(assignment.id) };
    this.#actors.set(assignment.id, new NodeVolumeActor(this.#ports, assignment, state, this.#parts));
  }

  #wayOpened(): void {
    for (const actor of this.#actors.values()) actor.wayOpened();
  }

  #serveWaiting(): void {
    for (const [taskId, { resolve, task }] of this.#waiting) {
      if (!task.volumes.every(({ id }) => this.#live(id)?.isReady === true)) continue;
      this.#waiting.delete(taskId);
      this.hold(task);
      void this.#places(task).then((places) => resolve(this.volumesOf(task, places)));
    }
  }

  async #places(task: Task): Promise<ReadonlyMap<string, VolumePlaces>> {
    const places = new Map<string, VolumePlaces>();
    for (const { id } of task.volumes) places.set(id, await this.#parts.places.make(id));
    return places;
  }

  async #tell(volumeId: string): Promise<void> {
    const send = this.#send;
    if (send === null) throw new RpcError(Status.UNAVAILABLE, "no session with a manager");
    await send(volumeId);
  }
}
