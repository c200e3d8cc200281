/** Control's config methods. Unlike a secret's, a config's data may be read. */
import { matchesEither } from "../../machines/list-filters.ts";
import { invalid, refuse } from "../../machines/refusal.ts";
import { checkConfigSpec, checkLabelsOnly, checkNotReferenced, relabelled } from "../../machines/validation/secret.ts";
import {
  CreateConfigResponse,
  GetConfigResponse,
  ListConfigsResponse,
  RemoveConfigResponse,
  Config,
  ConfigSpec,
  UpdateConfigResponse,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";
import { demand, demandGiven, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { atVersion, commit, creation, removal, replacement, stored } from "./write.ts";

type ConfigHandlers = Pick<
  ControlHandlers,
  "GetConfig" | "ListConfigs" | "CreateConfig" | "UpdateConfig" | "RemoveConfig"
>;

export function configHandlers(env: Environment): ConfigHandlers {
  const { store } = env;
  const random = env.random.fork("control/configs");

  function configOf(id: string): Config | undefined {
    if (id === "") throw rejection(invalid("config ID must be provided"));
    return store.get("config", id);
  }

  return {
    GetConfig({ configId }) {
      const config = configOf(configId);
      if (config === undefined) throw notFound("config", configId);
      return GetConfigResponse.create({ config });
    },

    ListConfigs({ filters }) {
      const configs: Config[] = [];
      for (const config of store.all("config")) {
        const { name = "", labels = {} } = config.spec?.annotations ?? {};
        const isShown = filters === null || matchesEither(filters, { id: config.id, name, labels });
        if (isShown) configs.push(config);
      }
      return ListConfigsResponse.create({ configs });
    },

    async CreateConfig({ spec }, call) {
      demand(checkConfigSpec(spec));
      const name = spec?.annotations?.name ?? "";
      const taken = (): RpcError => rejection(refuse("already-exists", `config ${name} already exists`));
      if (store.byName("config", name) !== undefined) throw taken();
      const config = Config.create({ id: newId(random), spec });
      try {
        await commit(env, call, creation("config", config));
      } catch (error) {
        throw error instanceof RpcError && error.code === Status.ALREADY_EXISTS ? taken() : error;
      }
      return CreateConfigResponse.create({ config: stored(env, "config", config) });
    },

    async UpdateConfig({ configId, configVersion, spec }, call) {
      demandGiven(configId, configVersion, spec);
      if (configVersion === null || spec === null) throw rejection(invalid("invalid argument"));
      const before = configOf(configId);
      if (before === undefined) throw notFound("config", configId);
      demand(checkLabelsOnly(before, spec));
      const after = Config.patch(before, {
        spec: ConfigSpec.patch(before.spec ?? spec, { annotations: relabelled(before.spec?.annotations, spec) }),
      });
      await commit(env, call, replacement("config", atVersion("config", after, configVersion)));
      return UpdateConfigResponse.create({ config: stored(env, "config", after) });
    },

    async RemoveConfig({ configId }, call) {
      const config = configOf(configId);
      if (config === undefined) throw new RpcError(Status.NOT_FOUND, `could not find config ${configId}`);
      demand(checkNotReferenced("config", config, store.all("service"), (id) => store.tasksByService(id)));
      await commit(env, call, removal("config", configId));
      return RemoveConfigResponse.create({});
    },
  };
}
