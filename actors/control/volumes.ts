/** Control's volume methods. Publishing volumes to nodes is done elsewhere. */
import { matchesVolume } from "../../machines/list-filters.ts";
import { refuse } from "../../machines/refusal.ts";
import {
  checkVolumeRemoval,
  checkVolumeSpec,
  checkVolumeUpdate,
  checkVolumeUpdateRequest,
} from "../../machines/validation/volume.ts";
import {
  CreateVolumeResponse,
  GetVolumeResponse,
  ListVolumesResponse,
  RemoveVolumeResponse,
  UpdateVolumeResponse,
  Volume,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { Environment } from "../environment.ts";
import { demand, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { atVersion, commit, creation, removal, replacement, stored, transact } from "./write.ts";

type VolumeHandlers = Pick<
  ControlHandlers,
  "GetVolume" | "ListVolumes" | "CreateVolume" | "UpdateVolume" | "RemoveVolume"
>;

export function volumeHandlers(env: Environment): VolumeHandlers {
  const { store } = env;
  const random = env.random.fork("control/volumes");

  function volumeOf(id: string): Volume {
    const volume = store.get("volume", id);
    if (volume === undefined) throw notFound("volume", id);
    return volume;
  }

  return {
    GetVolume({ volumeId }) {
      return GetVolumeResponse.create({ volume: volumeOf(volumeId) });
    },

    ListVolumes({ filters }) {
      const volumes: Volume[] = [];
      for (const volume of store.all("volume")) {
        if (filters === null || matchesVolume(filters, volume)) volumes.push(volume);
      }
      return ListVolumesResponse.create({ volumes });
    },

    async CreateVolume({ spec }, call) {
      demand(checkVolumeSpec(spec, (id) => store.get("secret", id) !== undefined));
      const name = spec?.annotations?.name ?? "";
      if (store.byName("volume", name) !== undefined) {
        throw rejection(refuse("already-exists", `volume ${name} already exists`));
      }
      const volume = Volume.create({ id: newId(random), spec });
      await commit(env, call, creation("volume", volume));
      return CreateVolumeResponse.create({ volume: stored(env, "volume", volume) });
    },

    async UpdateVolume({ volumeId, volumeVersion, spec }, call) {
      demand(checkVolumeUpdateRequest(volumeId, spec, volumeVersion));
      if (volumeVersion === null || spec === null) return UpdateVolumeResponse.create();
      const before = volumeOf(volumeId);
      demand(checkVolumeUpdate(before, spec));
      const after = Volume.patch(before, { spec });
      await commit(env, call, replacement("volume", atVersion("volume", after, volumeVersion)));
      return UpdateVolumeResponse.create({ volume: stored(env, "volume", after) });
    },

    async RemoveVolume({ volumeId, force }, call) {
      await transact(env, call, () => {
        const volume = volumeOf(volumeId);
        demand(checkVolumeRemoval(volume, force));
        return [
          force ? removal("volume", volumeId) : replacement("volume", Volume.patch(volume, { pendingDelete: true })),
        ];
      });
      return RemoveVolumeResponse.create({});
    },
  };
}
