/** `/swarm`. */
import {
  CAService,
  ClusterSpec,
  ControlService,
  GetUnlockKeyRequest,
  KeyRotation,
  UpdateClusterRequest,
  Annotations,
  Version,
} from "../../../proto/gen/messages.ts";
import { clusterObject } from "../../../lib/docker-objects/cluster.ts";
import { initBody, joinBody, swarmBody, unlockBody } from "../bodies/swarm.ts";
import { badRequest, Failure } from "../failure.ts";
import { findCluster } from "../find.ts";
import { parseBool, versionOf } from "../go-text.ts";
import { bodyOf, ok, type Handler } from "../request.ts";
import type { Shape } from "../shape.ts";

/** With the join tokens, which only admins see. */
export const inspectSwarm: Handler = async ({ calls }) => {
  const cluster = await findCluster(calls);
  const tokens = cluster.rootCa?.joinTokens;
  return ok({
    ...clusterObject(cluster),
    JoinTokens: { Worker: tokens?.worker ?? "", Manager: tokens?.manager ?? "" },
  });
};

function rotates(query: URLSearchParams, name: string): boolean {
  const text = query.get(name) ?? "";
  if (text === "") return false;
  const value = parseBool(text);
  if (value === null) throw badRequest(`invalid value for ${name}: ${text}`);
  return value;
}

export const updateSwarm: Handler = async (request) => {
  const { calls, query } = request;
  const body = await bodyOf(request, swarmBody);
  const index = versionOf(query, "swarm");
  const rotation = KeyRotation.create({
    workerJoinToken: rotates(query, "rotateWorkerToken"),
    managerJoinToken: rotates(query, "rotateManagerToken"),
    managerUnlockKey: rotates(query, "rotateManagerUnlockKey"),
  });
  const cluster = await findCluster(calls);
  const spec = swarmBody.read(body);
  const name = spec.annotations?.name ?? "";
  if (name !== "" && name !== "default") throw badRequest('swarm spec must be named "default"');
  const annotations = Annotations.patch(spec.annotations ?? Annotations.create({}), { name: "default" });
  await calls.unary(
    ControlService.methods.UpdateCluster,
    UpdateClusterRequest.create({
      clusterId: cluster.id,
      clusterVersion: Version.create({ index }),
      spec: ClusterSpec.patch(spec, { annotations }),
      rotation,
    }),
  );
  return ok();
};

/** In base64 without padding, after a prefix, as SwarmKit prints keys. */
export const inspectUnlockKey: Handler = async ({ calls }) => {
  const { unlockKey } = await calls.unary(CAService.methods.GetUnlockKey, GetUnlockKeyRequest.create({}));
  const text = Buffer.from(unlockKey).toString("base64").replace(/=+$/, "");
  return ok({ UnlockKey: text === "" ? "" : `SWMKEY-1-${text}` });
};

/** A body of wrong types is refused before the state of the cluster is. */
function refusing(shape: Shape<unknown>, failure: Failure): Handler {
  return async (request) => {
    await bodyOf(request, shape);
    throw failure;
  };
}

const partOfSwarm = new Failure(
  503,
  'This node is already part of a swarm. Use "docker swarm leave" to leave this swarm and join another one.',
);

export const unlock = refusing(unlockBody, new Failure(409, "swarm is not locked"));
export const init = refusing(initBody, partOfSwarm);
export const join = refusing(joinBody, partOfSwarm);

export const leave: Handler = () => {
  throw new Failure(
    503,
    "a manager of a Muster cluster leaves by demotion: run 'docker node demote' on it, then stop its process and run 'docker node rm'",
  );
};
