/**
 * A planned spec as the rehearsed cluster's managers accept it: its networks by id, and without what the cluster lacks, which
 * changes nothing about when and where its tasks run.
 */
import { containerDriver } from "../../machines/driver/container-task.ts";
import { driverRuntimeOf } from "../../machines/driver/spec.ts";
import {
  Any,
  ContainerSpec,
  DriverSpec,
  GenericRuntimeSpec,
  HealthCheck,
  HealthTcp,
  NetworkAttachmentConfig,
  ServiceSpec,
  TaskSpec,
} from "../../proto/gen/messages.ts";

/** `networkIds`: by name. */
export function deployable(spec: ServiceSpec, networkIds: ReadonlyMap<string, string>): ServiceSpec {
  const attached = (networks: readonly NetworkAttachmentConfig[]) =>
    networks.map((network) =>
      NetworkAttachmentConfig.patch(network, { target: networkIds.get(network.target) ?? network.target }),
    );
  const task = spec.task ?? TaskSpec.create();
  return ServiceSpec.patch(spec, {
    networks: attached(spec.networks),
    task: TaskSpec.patch(task, {
      networks: attached(task.networks),
      resourceReferences: [],
      container:
        task.container === null ? null : ContainerSpec.patch(task.container, { secrets: [], configs: [], mounts: [] }),
      generic: genericOf(task),
    }),
  });
}

/** A simulated task has no files and cannot run the command of a check: the check connects to it instead, at the same times. */
function genericOf(task: TaskSpec): GenericRuntimeSpec | null {
  const runtime = driverRuntimeOf(task);
  if (task.generic === null || runtime === null) return task.generic;
  const { health } = runtime.spec;
  const checked =
    health === null || health.command.length === 0
      ? health
      : HealthCheck.patch(health, { command: [], tcp: HealthTcp.create({ port: 1 }) });
  const value = DriverSpec.encode(
    DriverSpec.patch(runtime.spec, { secrets: [], configs: [], mounts: [], health: checked }),
  );
  const payload = Any.create({ type_url: task.generic.payload?.type_url ?? "", value });
  return GenericRuntimeSpec.patch(task.generic, { payload });
}

/** Plugins of an engine, as Docker's has them, with those that the specs ask for. */
function enginePlugins(specs: readonly ServiceSpec[]): { readonly type: string; readonly name: string }[] {
  const plugins = new Map<string, { readonly type: string; readonly name: string }>();
  const add = (type: string, name: string): void => void plugins.set(`${type}/${name}`, { type, name });
  for (const name of ["bridge", "host", "ipvlan", "macvlan", "null", "overlay"]) add("Network", name);
  for (const name of ["json-file", "local", "none", "syslog"]) add("Log", name);
  add("Volume", "local");
  for (const { task } of specs)
    if (task?.logDriver != null && task.logDriver.name !== "") add("Log", task.logDriver.name);
  return [...plugins.values()];
}

/** Plugins that a node with a driver for tasks of this kind advertises: an engine's, or the driver and overlay networks. */
export function advertisedFor(
  kind: string,
  specs: readonly ServiceSpec[],
): readonly { readonly type: string; readonly name: string }[] {
  if (kind === containerDriver) return enginePlugins(specs);
  return [
    { type: "Driver", name: kind },
    { type: "Network", name: "overlay" },
  ];
}
