/** A small cluster whose spans are kept, and commands of a person in it. */
import {
  ControlService,
  CreateServiceRequest,
  GetServiceRequest,
  UpdateServiceRequest,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";

/** Attributes that vary with the timing of other work, or repeat the process. */
export const varying = ["muster.bytes", "muster.changes", "muster.manager", "muster.proposals"] as const;

const { CreateService, GetService, UpdateService } = ControlService.methods;

/** Three managers and two agents, unless the options say otherwise. `create` and `update` return the trace's id. */
export async function tracedCluster(options: Partial<ConstructorParameters<typeof ScriptedWorld>[0]> = {}) {
  const world = new ScriptedWorld({ seed: 3, managers: 3, agents: 2, tasks: steadyTasks, keepSpans: true, ...options });
  await world.found();
  let serviceId = "";
  const create = (spec: ServiceSpec): Promise<string> =>
    world.command("service create", async (channel, options) => {
      const { service } = await channel.unary(CreateService, CreateServiceRequest.create({ spec }), options);
      serviceId = service?.id ?? "";
    });
  const update = (change: (spec: ServiceSpec) => ServiceSpec): Promise<string> =>
    world.command("service update", async (channel, options) => {
      const { timeoutMs } = options;
      const { service } = await channel.unary(GetService, GetServiceRequest.create({ serviceId }), { timeoutMs });
      const spec = service?.spec == null ? null : change(service.spec);
      const serviceVersion = service?.meta?.version ?? null;
      await channel.unary(UpdateService, UpdateServiceRequest.create({ serviceId, serviceVersion, spec }), options);
    });
  return { world, create, update };
}
