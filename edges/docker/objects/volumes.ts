/** `/volumes`: those of the cluster, which storage plugins provide. The volumes of engines are not visible here. */
import {
  ControlService,
  CreateVolumeRequest,
  ListVolumesRequest,
  ListVolumesRequest_Filters,
  RemoveVolumeRequest,
  UpdateVolumeRequest,
  Version,
  VolumeSpec,
  type Volume,
} from "../../../proto/gen/messages.ts";
import { volumeObject } from "../../../lib/docker-objects/index.ts";
import { isOlder } from "../api-version.ts";
import { availabilityOf, clusterVolumeOf, volumeBody, volumeUpdateBody } from "../bodies/volume.ts";
import { Failure, notHere } from "../failure.ts";
import { findVolume } from "../find.ts";
import { isSet, versionOf } from "../go-text.ts";
import { bodyOf, filtersOf, ok, type DockerRequest, type Handler } from "../request.ts";

const { methods } = ControlService;
const known = ["dangling", "driver", "label", "name"];

export const listVolumes: Handler = async (request) => {
  const filters = filtersOf(request).accept(known);
  // It is checked, but only the volumes of engines are ever dangling.
  filters.flag("dangling", true);
  const { volumes } = await request.calls.unary(
    methods.ListVolumes,
    ListVolumesRequest.create({
      filters: ListVolumesRequest_Filters.create({
        namePrefixes: filters.of("name"),
        labels: filters.pairs("label"),
        drivers: filters.of("driver"),
      }),
    }),
  );
  return ok({ Volumes: volumes.map(volumeObject), Warnings: null });
};

/** Before 1.42, clients know only the volumes of engines. */
async function volumeOf({ calls, name, version }: DockerRequest): Promise<Volume> {
  try {
    return await findVolume(calls, name);
  } catch (error) {
    const isMissing = error instanceof Failure && error.status === 404;
    throw isMissing && isOlder(version, "1.42") ? new Failure(404, `get ${name}: no such volume`) : error;
  }
}

export const inspectVolume: Handler = async (request) => ok(volumeObject(await volumeOf(request)));

export const createVolume: Handler = async (request) => {
  const spec = clusterVolumeOf(await bodyOf(request, volumeBody));
  if (spec === null)
    throw notHere("local volumes", "create one with the engine of a node, or a cluster volume (--type with --driver)");
  const { volume } = await request.calls.unary(methods.CreateVolume, CreateVolumeRequest.create({ spec }));
  return { status: 201, body: volume === null ? null : volumeObject(volume) };
};

export const updateVolume: Handler = async (request) => {
  const index = versionOf(request.query, "swarm object");
  const availability = availabilityOf(await bodyOf(request, volumeUpdateBody));
  const { id: volumeId, spec } = await findVolume(request.calls, request.name);
  const update = UpdateVolumeRequest.create({
    volumeId,
    volumeVersion: Version.create({ index }),
    spec: availability === null || spec === null ? spec : VolumeSpec.patch(spec, { availability }),
  });
  await request.calls.unary(methods.UpdateVolume, update);
  return ok();
};

export const removeVolume: Handler = async (request) => {
  const force = isSet(request.query.get("force"));
  try {
    const { id: volumeId } = await volumeOf(request);
    await request.calls.unary(methods.RemoveVolume, RemoveVolumeRequest.create({ volumeId, force }));
  } catch (error) {
    if (!(force && error instanceof Failure && error.status === 404)) throw error;
  }
  return { status: 204 };
};
