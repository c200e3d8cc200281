/**
 * The leader's care for cluster volumes: an actor for the life of each, and one for each node that has, gets or gives one
 * up. Nothing is remembered from one leader to the next: each reads on start what it has to go on with.
 */
import { lazyNodeNames } from "../../machines/node-names.ts";
import { explainTaskVolumes, explainVolume, type CsiView } from "../../machines/volumes/csi/explain.ts";
import { driverOf } from "../../machines/volumes/csi/stages.ts";
import { isHeld, observedState } from "../../machines/task.ts";
import type { Reason, Task, Volume } from "../../proto/gen/messages.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { CsiPlugins } from "./csi-plugins.ts";
import type { CsiSockets } from "../../runtime/csi-sockets.ts";
import type { Environment, Running } from "../environment.ts";
import { PublicationActor } from "./publication.ts";
import { VolumeActor, type VolumeParts } from "./volume.ts";

export interface Volumes extends Running {
  /** What the volume waits for; empty when there is none of that id. */
  explain(volumeId: string): readonly Reason[];
  /** Which volumes are in a task's way, and why. */
  explainTask(task: Task): readonly Reason[];
}

/** For the leader only, once its replica has caught up: two at once would both ask the plugins. */
export function startVolumes(env: Environment, sockets: CsiSockets): Volumes {
  return new VolumesActor(env, sockets);
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
  /** By volume: the tasks that were given it and have not ended. */
  readonly #users = new Map<string, Set<string>>();
  readonly #unsubscribe: () => void;
  #stopped = false;

  constructor(env: Environment, sockets: CsiSockets) {
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
    this.#parts = { plugins, hasUsers: (id) => this.#users.has(id), chance: () => random.next() };
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
          // A node's description says what a plugin calls it, and a node that is gone gives nothing up any more.
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

  /** Notes which volumes the task uses; those whose users begin or end are added to `touched`. */
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

  /** The object is gone: so is whatever was still to be done, as when it was removed by force. */
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

function standing(actor: VolumeActor | PublicationActor | undefined): { state: string; reason: string } | null {
  return actor === undefined ? null : { state: actor.state, reason: actor.context.reason };
}
