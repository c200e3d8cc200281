/** Control's extension methods: the kinds of custom objects that the cluster stores. */
import { checkExtension, checkExtensionRemoval } from "../../machines/validation/resource.ts";
import { refuse } from "../../machines/refusal.ts";
import {
  CreateExtensionResponse,
  Extension,
  GetExtensionResponse,
  RemoveExtensionResponse,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { tableNames } from "../../proto/table-names.ts";
import type { Environment } from "../environment.ts";
import { demand, demandId, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { commit, creation, removal, stored } from "./write.ts";

type ExtensionHandlers = Pick<ControlHandlers, "GetExtension" | "CreateExtension" | "RemoveExtension">;

export function extensionHandlers(env: Environment): ExtensionHandlers {
  const { store } = env;
  const random = env.random.fork("control/extensions");

  function extensionOf(id: string): Extension | undefined {
    demandId(id, "extension ID must be provided");
    return store.get("extension", id);
  }

  return {
    GetExtension({ extensionId }) {
      const extension = extensionOf(extensionId);
      if (extension === undefined) throw notFound("extension", extensionId);
      return GetExtensionResponse.create({ extension });
    },

    async CreateExtension({ annotations, description }, call) {
      demand(checkExtension(annotations, tableNames));
      const name = annotations?.name ?? "";
      const taken = (): RpcError => rejection(refuse("already-exists", `extension ${name} already exists`));
      if (store.byName("extension", name) !== undefined) throw taken();
      const extension = Extension.create({ id: newId(random), annotations, description });
      try {
        await commit(env, call, creation("extension", extension));
      } catch (error) {
        throw error instanceof RpcError && error.code === Status.ALREADY_EXISTS ? taken() : error;
      }
      return CreateExtensionResponse.create({ extension: stored(env, "extension", extension) });
    },

    async RemoveExtension({ extensionId }, call) {
      const extension = extensionOf(extensionId);
      if (extension === undefined) throw new RpcError(Status.NOT_FOUND, `could not find extension ${extensionId}`);
      demand(checkExtensionRemoval(extension, store.all("resource")));
      await commit(env, call, removal("extension", extensionId));
      return RemoveExtensionResponse.create({});
    },
  };
}
