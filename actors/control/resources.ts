/** Control's extension and resource methods: kinds of objects that the cluster keeps for others. */
import { isOneOf, matchesCommon } from "../../machines/list-filters.ts";
import { checkNameGiven } from "../../machines/names.ts";
import { invalid, refuse } from "../../machines/refusal.ts";
import {
  CreateExtensionResponse,
  CreateResourceResponse,
  Extension,
  GetExtensionResponse,
  GetResourceResponse,
  ListResourcesResponse,
  RemoveExtensionResponse,
  RemoveResourceResponse,
  Resource,
  UpdateResourceResponse,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { tableNames } from "../../runtime/store/tables.ts";
import type { Environment } from "../environment.ts";
import { demand, demandGiven, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { atVersion, commit, creation, removal, replacement, stored } from "./write.ts";

type ResourceHandlers = Pick<
  ControlHandlers,
  | "GetExtension"
  | "CreateExtension"
  | "RemoveExtension"
  | "GetResource"
  | "ListResources"
  | "CreateResource"
  | "UpdateResource"
  | "RemoveResource"
>;

export function resourceHandlers(env: Environment): ResourceHandlers {
  const { store } = env;
  const random = env.random.fork("control/resources");

  function extensionOf(id: string): Extension {
    demandGiven(id);
    const extension = store.get("extension", id);
    if (extension === undefined) throw notFound("extension", id);
    return extension;
  }

  function resourceOf(id: string): Resource {
    demandGiven(id);
    const resource = store.get("resource", id);
    if (resource === undefined) throw notFound("resource", id);
    return resource;
  }

  return {
    GetExtension({ extensionId }) {
      return GetExtensionResponse.create({ extension: extensionOf(extensionId) });
    },

    async CreateExtension({ annotations, description }, call) {
      demand(checkNameGiven(annotations));
      const name = annotations?.name ?? "";
      if ((tableNames as readonly string[]).includes(name.toLowerCase())) {
        throw rejection(invalid(`extension name '${name}' is that of a built-in kind of object`));
      }
      if (store.byName("extension", name) !== undefined) {
        throw rejection(refuse("already-exists", `extension ${name} already exists`));
      }
      const extension = Extension.create({ id: newId(random), annotations, description });
      await commit(env, call, creation("extension", extension));
      return CreateExtensionResponse.create({ extension: stored(env, "extension", extension) });
    },

    async RemoveExtension({ extensionId }, call) {
      const extension = extensionOf(extensionId);
      const kind = extension.annotations?.name ?? "";
      for (const resource of store.all("resource")) {
        if (resource.kind !== kind) continue;
        const message = "cannot delete extension because objects of this type exist in the data store";
        throw rejection(refuse("failed-precondition", message));
      }
      await commit(env, call, removal("extension", extensionId));
      return RemoveExtensionResponse.create({});
    },

    GetResource({ resourceId }) {
      return GetResourceResponse.create({ resource: resourceOf(resourceId) });
    },

    ListResources({ filters }) {
      const resources: Resource[] = [];
      for (const resource of store.all("resource")) {
        const { name = "", labels = {} } = resource.annotations ?? {};
        const isShown =
          filters === null ||
          (matchesCommon(filters, { id: resource.id, name, labels }) &&
            isOneOf(filters.kind === "" ? [] : [filters.kind], resource.kind));
        if (isShown) resources.push(resource);
      }
      return ListResourcesResponse.create({ resources });
    },

    async CreateResource({ annotations, kind, payload }, call) {
      demand(checkNameGiven(annotations));
      const registered = store.byName("extension", kind);
      if (kind === "" || registered?.annotations?.name !== kind) {
        throw rejection(invalid(`Kind ${kind} is not registered`));
      }
      const name = annotations?.name ?? "";
      if (store.byName("resource", name) !== undefined) {
        throw rejection(refuse("already-exists", `A resource with name ${name} already exists`));
      }
      const resource = Resource.create({ id: newId(random), annotations, kind, payload });
      await commit(env, call, creation("resource", resource));
      return CreateResourceResponse.create({ resource: stored(env, "resource", resource) });
    },

    async UpdateResource({ resourceId, resourceVersion, annotations, payload }, call) {
      demandGiven(resourceId, resourceVersion);
      if (resourceVersion === null) throw rejection(invalid("invalid argument"));
      const before = resourceOf(resourceId);
      const name = before.annotations?.name ?? "";
      if (annotations !== null && annotations.name !== name) {
        throw rejection(refuse("unimplemented", "renaming resources is not supported"));
      }
      // What is left out stays as it is.
      const after = Resource.patch(before, {
        annotations: annotations ?? before.annotations,
        payload: payload ?? before.payload,
      });
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
