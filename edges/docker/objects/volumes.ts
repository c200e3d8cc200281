/** `/volumes`: those of the cluster, which storage plugins provide. The volumes of engines are not visible here. */
import { ControlService, ListVolumesRequest, ListVolumesRequest_Filters } from "../../../proto/gen/messages.ts";
import { volumeObject } from "../../../lib/docker-objects/index.ts";
import { Failure } from "../failure.ts";
import { filtersOf, ok, type Handler } from "../request.ts";

const { methods } = ControlService;
const known = ["dangling", "driver", "label", "name"];

export const listVolumes: Handler = async (request) => {
  const filters = filtersOf(request).accept(known);
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

export const inspectVolume: Handler = async ({ calls, name }) => {
  const { volumes } = await calls.unary(
    methods.ListVolumes,
    ListVolumesRequest.create({ filters: ListVolumesRequest_Filters.create({ names: [name] }) }),
  );
  if (volumes[0] === undefined) throw new Failure(404, `get ${name}: no such volume`);
  return ok(volumeObject(volumes[0]));
};
