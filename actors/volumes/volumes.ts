/**
 * The leader's management of cluster volumes: one actor for the lifecycle of each, and one for each node that has, gets or
 * releases one. Nothing is carried over from one leader to the next: each reads its state from the store on start.
 */
import { lazyNodeNames } from "../../machines/node-names.ts";
import { explainTaskVolumes, explainVolume, type CsiView } from "../../machines/volumes/csi/explain.ts";
import { driverOf } from "../../machines/volumes/csi/stages.ts";
import { isHeld, observedState } from "../../machines/task.ts";
import type { Reason, Task, Volume } from "../../proto/gen/messages.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { CsiPlugins } from "./csi-plugins.ts";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import type { Environment, Running } from "../environment.ts";
import { PublicationActor } from "./publication.ts";
import { VolumeActor, type VolumeParts } from "./volume.ts";

export interface Volumes extends Running {
  /** Why the volume is waiting; empty when no such volume exists. */
  explain(volumeId: string): readonly Reason[];
  /** Which volumes block a task, and why. */
  explainTask(task: Task): readonly Reason[];
}

/**
 * For the leader only, after its replica has caught up: two instances would both call the plugins. `isTermCurrent`: whether this
 * manager still leads, asked before each call.
 */
export function startVolumes(env: Environment, sockets: CsiSockets, isTermCurrent: () => boolean): Volumes {
  return new VolumesActor(env, sockets, isTermCurrent);
}

interface Cared {
  readonly life: VolumeActor;
  /** By node. */
  readonly publications: Map<string, PublicationActor>;
}

class VolumesActor implements Volumes {
  readonly #env: Environment;
  readonly #parts: VolumeParts;
  readonly #cared = new Map<string, Cared>();
  /** Tasks by volume id: those that have the volume assigned and have not terminated. */
  readonly #users = new Map<string, Set<string>>();
  readonly #unsubscribe: () => void;
  #stopped = false;

  constructor(env: Environment, sockets: CsiSockets, isTermCurrent: () => boolean) {
    this.#env = env;
    const random = env.random.fork("volumes");
    const plugins = new CsiPlugins({
      side: "controller",
      host: env.host,
      random: random.fork("plugins"),
      telemetry: env.telemetry,
      sockets,
      onServing: (name) => this.#pluginServes(name),
    });
    this.#parts = { plugins, hasUsers: (id) => this.#users.has(id), draw: drawUpperHalf(random), isTermCurrent };
    for (const task of env.store.all("task")) if (task.volumes.length > 0) this.#follow(task, new Set());
    for (const volume of env.store.all("volume")) this.#care(volume);
    const watch = env.store.watch((commit) => this.#onCommit(commit));
    this.#unsubscribe = () => watch.unsubscribe();
  }

  explain(volumeId: string): readonly Reason[] {
    const volume = this.#env.store.get("volume", volumeId);
    return volume === undefined ? [] : explainVolume(volume, this.#view());
  }

  explainTask(task: Task): readonly Reason[] {
    return explainTaskVolumes(task, this.#view());
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#unsubscribe();
    for (const id of this.#cared.keys()) this.#release(id);
    this.#parts.plugins.stop();
  }

  #view(): CsiView {
    const { store } = this.#env;
    return {
      volumes: () => store.all("volume"),
      volume: (id) => store.get("volume", id),
      nodeName: lazyNodeNames(() => store.all("node")),
      life: (id) => standing(this.#cared.get(id)?.life),
      publication: (id, nodeId) => standing(this.#cared.get(id)?.publications.get(nodeId)),
    };
  }

  #onCommit({ changes }: Commit): void {
    const touched = new Set<string>();
    for (const change of changes) {
      switch (change.table) {
        case "volume":
          touched.add(change.object.id);
          break;
        case "task":
          if (change.object.volumes.length === 0 && (change.old?.volumes.length ?? 0) === 0) break;
          if (change.action === "remove") this.#follow(null, touched, change.object);
          else this.#follow(change.object, touched, change.old);
          break;
        case "node":
          // A node's description has the plugin's id for it, and a removed node has nothing left to release.
          if (change.action === "remove" || change.old?.description !== change.object.description)
            for (const [id, { publications }] of this.#cared) if (publications.has(change.object.id)) touched.add(id);
          break;
        default:
      }
    }
    for (const id of touched) {
      const volume = this.#env.store.get("volume", id);
      if (volume === undefined) this.#release(id);
      else this.#care(volume);
    }
  }

  /** Records which volumes the task uses; adds those whose set of users changed to `touched`. */
  #follow(task: Task | null, touched: Set<string>, old: Task | null = null): void {
    const taskId = task?.id ?? old?.id ?? "";
    const used = new Set(task !== null && isHeld(observedState(task)) ? task.volumes.map(({ id }) => id) : []);
    for (const { id } of old?.volumes ?? []) {
      const users = this.#users.get(id);
      if (used.has(id) || users?.delete(taskId) !== true || users.size > 0) continue;
      this.#users.delete(id);
      touched.add(id);
    }
    for (const id of used) {
      const users = this.#users.get(id);
      if (users !== undefined) {
        users.add(taskId);
        continue;
      }
      this.#users.set(id, new Set([taskId]));
      touched.add(id);
    }
  }

  #care(volume: Volume): void {
    let cared = this.#cared.get(volume.id);
    if (cared === undefined) {
      cared = { life: new VolumeActor(this.#env, volume.id, this.#parts), publications: new Map() };
      this.#cared.set(volume.id, cared);
    } else cared.life.look();
    const { publications } = cared;
    for (const [nodeId, publication] of publications) {
      publication.look();
      if (!publication.isOver) continue;
      publication.stop();
      publications.delete(nodeId);
    }
    for (const { nodeId } of volume.publishStatus) {
      if (!publications.has(nodeId))
        publications.set(nodeId, new PublicationActor(this.#env, volume.id, nodeId, this.#parts));
    }
  }

  /** The object was removed, for example by force: its pending work ends with it. */
  #release(id: string): void {
    const cared = this.#cared.get(id);
    if (cared === undefined) return;
    this.#cared.delete(id);
    cared.life.stop();
    for (const publication of cared.publications.values()) publication.stop();
  }

  #pluginServes(name: string): void {
    for (const [id, { life, publications }] of this.#cared) {
      const volume = this.#env.store.get("volume", id);
      if (volume === undefined || driverOf(volume) !== name) continue;
      life.pluginServes();
      for (const publication of publications.values()) publication.pluginServes();
    }
  }
}

interface Caring<State> {
  readonly state: State;
  readonly context: { readonly reason: string };
}

function standing<State extends string>(actor: Caring<State> | undefined) {
  return actor === undefined || actor.state === "gone" ? null : { state: actor.state, reason: actor.context.reason };
}
