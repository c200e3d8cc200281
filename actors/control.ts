/**
 * The Control service of every manager: reads come from its own replica; writes go through the leader's ledger, and are
 * answered once its own replica has them. `machines/validation/` decides what is allowed.
 */
import { clusterHandlers } from "./control/clusters.ts";
import { configHandlers } from "./control/configs.ts";
import type { ControlHandlers, ControlSources } from "./control/handlers.ts";
import { extensionHandlers } from "./control/extensions.ts";
import { networkHandlers } from "./control/networks.ts";
import { nodeHandlers } from "./control/nodes.ts";
import { resourceHandlers } from "./control/resources.ts";
import { secretHandlers } from "./control/secrets.ts";
import { serviceHandlers } from "./control/services.ts";
import { taskHandlers } from "./control/tasks.ts";
import { tracedControl } from "./control/traced.ts";
import { volumeHandlers } from "./control/volumes.ts";
import type { Environment } from "./environment.ts";

export type { ControlSources } from "./control/handlers.ts";

export function createControl(env: Environment, sources: ControlSources): { readonly handlers: ControlHandlers } {
  return {
    handlers: tracedControl(env, {
      ...nodeHandlers(env, sources),
      ...taskHandlers(env),
      ...serviceHandlers(env),
      ...clusterHandlers(env, sources),
      ...networkHandlers(env),
      ...secretHandlers(env),
      ...configHandlers(env),
      ...volumeHandlers(env),
      ...extensionHandlers(env),
      ...resourceHandlers(env),
    }),
  };
}
