/** A task config as a driver gets it, running a program of the node. */
import type { DriverTask } from "../../actors/agent/ports.ts";
import { Any, ExecSpec } from "../../proto/gen/messages.ts";

/** The second task of a service `web`, with overrides in `more`. */
export function driverTask(id: string, spec: Partial<ExecSpec>, more: Partial<DriverTask> = {}): DriverTask {
  const value = ExecSpec.encode(ExecSpec.create(spec));
  return {
    id,
    name: `web.2.${id}`,
    slot: 2,
    serviceId: "svc",
    serviceName: "web",
    serviceLabels: { tier: "front" },
    nodeId: "node1",
    nodeHostname: "host1",
    nodePlatform: { architecture: "x86_64", os: "linux" },
    payload: Any.create({ type_url: "type.muster.dev/muster.v1.ExecSpec", value }),
    secrets: new Map(),
    configs: new Map(),
    traceparent: "",
    ...more,
  };
}
