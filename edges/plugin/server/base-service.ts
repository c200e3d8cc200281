/** The BasePlugin service, which every plugin serves, for a driver written in TypeScript. */
import {
  ConfigSchemaResponse,
  PluginInfoResponse,
  PluginType,
  SetConfigResponse,
  type BasePluginService,
} from "../../../proto/gen/nomad.ts";
import { driverApiVersion } from "../../../lib/driver-api.ts";
import { RpcError, Status, type ServiceHandlers } from "../../../runtime/ports/rpc.ts";
import type { Driver } from "./driver.ts";
import { objectSpec, readConfig } from "./fields.ts";

export function baseHandlers(driver: Driver): ServiceHandlers<typeof BasePluginService> {
  return {
    PluginInfo: () =>
      PluginInfoResponse.create({
        type: PluginType.DRIVER,
        pluginApiVersions: [driverApiVersion],
        pluginVersion: driver.version,
        name: driver.name,
      }),
    ConfigSchema: () =>
      ConfigSchemaResponse.create({ spec: driver.config === undefined ? null : objectSpec(driver.config) }),
    async SetConfig({ msgpackConfig, nomadConfig }) {
      try {
        await driver.configure?.(readConfig(driver.config ?? {}, msgpackConfig) as never, nomadConfig?.driver ?? null);
      } catch (error) {
        if (error instanceof RpcError) throw error;
        throw new RpcError(Status.UNKNOWN, error instanceof Error ? error.message : String(error));
      }
      return SetConfigResponse.create();
    },
  };
}
