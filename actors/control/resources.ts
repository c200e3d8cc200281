/** Control's resource methods: custom objects of kinds registered by extensions. */
import { matchesResource } from "../../machines/list-filters.ts";
import { checkPolicyResource } from "../../machines/policy/check.ts";
import { checkResource, checkResourceUpdate } from "../../machines/validation/resource.ts";
import { invalid, refuse } from "../../machines/refusal.ts";
import {
  CreateResourceResponse,
  GetResourceResponse,
  ListResourcesResponse,
  RemoveResourceResponse,
  Resource,
  UpdateResourceResponse,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";
import { demand, demandId, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { atVersion, commit, creation, removal, replacement, stored } from "./write.ts";

type ResourceHandlers = Pick<
  ControlHandlers,
  "GetResource" | "ListResources" | "CreateResource" | "UpdateResource" | "RemoveResource"
>;

export function resourceHandlers(env: Environment): ResourceHandlers {
  const { store } = env;
  const random = env.random.fork("control/resources");

  function resourceOf(id: string): Resource {
    demandId(id, "resource ID must be present");
    const resource = store.get("resource", id);
    if (resource === undefined) throw notFound("resource", id);
    return resource;
  }

  return {
    GetResource({ resourceId }) {
      return GetResourceResponse.create({ resource: resourceOf(resourceId) });
    },

    ListResources({ filters }) {
      const resources: Resource[] = [];
      for (const resource of store.all("resource")) {
        if (filters === null || matchesResource(filters, resource)) resources.push(resource);
      }
      return ListResourcesResponse.create({ resources });
    },

    async CreateResource({ annotations, kind, payload }, call) {
      demand(checkResource(annotations, kind, store.byName("extension", kind)));
      demand(checkPolicyResource({ annotations, kind, payload }));
      const name = annotations?.name ?? "";
      const taken = (): RpcError => rejection(refuse("already-exists", `A resource with name ${name} already exists`));
      if (store.byName("resource", name) !== undefined) throw taken();
      const resource = Resource.create({ id: newId(random), annotations, kind, payload });
      try {
        await commit(env, call, creation("resource", resource));
      } catch (error) {
        throw error instanceof RpcError && error.code === Status.ALREADY_EXISTS ? taken() : error;
      }
      return CreateResourceResponse.create({ resource: stored(env, "resource", resource) });
    },

    async UpdateResource({ resourceId, resourceVersion, annotations, payload }, call) {
      if (resourceId === "" || resourceVersion === null) throw rejection(invalid("must include ID and version"));
      const before = resourceOf(resourceId);
      demand(checkResourceUpdate(before, annotations, store.byName("extension", before.kind)));
      // Omitted fields stay unchanged.
      const after = Resource.patch(before, {
        annotations: annotations ?? before.annotations,
        payload: payload ?? before.payload,
      });
      demand(checkPolicyResource(after));
      await commit(env, call, replacement("resource", atVersion("resource", after, resourceVersion)));
      return UpdateResourceResponse.create({ resource: stored(env, "resource", after) });
    },

    async RemoveResource({ resourceId }, call) {
      resourceOf(resourceId);
      await commit(env, call, removal("resource", resourceId));
      return RemoveResourceResponse.create({});
    },
  };
}
