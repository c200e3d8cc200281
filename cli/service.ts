/** `muster service`: create, update, rollback, scale and rm; reading commands are in `service/listing.ts`. */
import {
  ControlService,
  CreateServiceRequest,
  RemoveServiceRequest,
  ServiceSpec,
  UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  type Service,
} from "../proto/gen/messages.ts";
import { command, type Command } from "./command.ts";
import { findService, retryingConflicts, withManager, type ManagerClient } from "./manager-client.ts";
import { eachOperand } from "./operands.ts";
import { untilConverged } from "./progress.ts";
import { inspect, ls, ps } from "./service/listing.ts";
import { rebalance } from "./rebalance.ts";
import { parseScale, scaledTo } from "./scaled-spec.ts";
import { withDriverConfig } from "./service/driver.ts";
import { behaviourFlags, createFlags, refuseOtherFlags, updateFlags } from "./service/flags.ts";
import { plan } from "./service/plan.ts";
import { lookupsFor } from "./service/references.ts";
import { withRegistryAuth } from "./service/registry-auth.ts";
import { changedSpec, newSpec } from "./service/spec.ts";
import { serviceWarnings } from "./service/warnings.ts";

const methods = ControlService.methods;

const create = command({
  operands: "[IMAGE|COMMAND] [ARG...]",
  stopsAtOperand: true,
  summary: "Create a service of containers, of plain processes (--driver exec), or of a driver plugin's tasks.",
  options: createFlags,
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const spec = newSpec(await withDriverConfig(values), operands, await lookupsFor(client, values));
      const isAuthSent = values["with-registry-auth"] === true;
      const request = CreateServiceRequest.create({ spec: isAuthSent ? withRegistryAuth(spec) : spec });
      const { service } = await client.call(methods.CreateService, request);
      const id = service?.id ?? "";
      shell.print(id);
      for (const text of await serviceWarnings(client, [service?.spec ?? spec])) shell.remark(`warning: ${text}`);
      if (values.detach !== true) await untilConverged(client, shell, id, { quiet: values.quiet ?? false });
    }),
});

/** Read-modify-write of a service, retried when another writer (the allocator, an update) interferes. */
function changeService(
  client: ManagerClient,
  operand: string,
  change: (spec: ServiceSpec) => ServiceSpec,
  rollback: UpdateServiceRequest_Rollback = UpdateServiceRequest_Rollback.NONE,
): Promise<Service> {
  return retryingConflicts(async () => {
    const service = await findService(client, operand);
    const spec = change(service.spec ?? ServiceSpec.create({}));
    const serviceVersion = service.meta?.version ?? null;
    await client.call(
      methods.UpdateService,
      UpdateServiceRequest.create({ serviceId: service.id, serviceVersion, spec, rollback }),
    );
    return service;
  });
}

const update = command({
  operands: "SERVICE",
  min: 1,
  max: 1,
  summary: "Update a service; settings without a flag stay unchanged.",
  options: updateFlags,
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const isRollback = values.rollback === true;
      if (isRollback) refuseOtherFlags(values);
      const lookups = await lookupsFor(client, values);
      const flags = await withDriverConfig(values);
      let wanted: readonly ServiceSpec[] = [];
      const change = (before: ServiceSpec): ServiceSpec => {
        const spec = changedSpec(before, flags, lookups);
        wanted = values["constraint-add"] === undefined ? [] : [spec];
        return values["with-registry-auth"] === true ? withRegistryAuth(spec) : spec;
      };
      const rollback = isRollback ? UpdateServiceRequest_Rollback.PREVIOUS : UpdateServiceRequest_Rollback.NONE;
      const operand = operands[0] as string;
      const { id } = await changeService(client, operand, change, rollback);
      shell.print(operand);
      for (const text of await serviceWarnings(client, wanted)) shell.remark(`warning: ${text}`);
      if (values.detach !== true) await untilConverged(client, shell, id, { quiet: values.quiet ?? false, isRollback });
    }),
});

const rollback = command({
  operands: "SERVICE",
  min: 1,
  max: 1,
  summary: "Roll a service back to its previous spec.",
  options: { detach: behaviourFlags.detach, quiet: behaviourFlags.quiet },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const operand = operands[0] as string;
      const { id } = await changeService(client, operand, (spec) => spec, UpdateServiceRequest_Rollback.PREVIOUS);
      shell.print(operand);
      if (values.detach !== true) {
        await untilConverged(client, shell, id, { quiet: values.quiet ?? false, isRollback: true });
      }
    }),
});

const scale = command({
  operands: "SERVICE=REPLICAS [SERVICE=REPLICAS...]",
  min: 1,
  summary: "Scale one or more replicated services.",
  options: { detach: behaviourFlags.detach },
  run: ({ values, operands, shell }) => {
    const wanted = operands.map(parseScale);
    return withManager(shell, async (client) => {
      const ids: string[] = [];
      const scaling = eachOperand(wanted, async ({ name, count }) => {
        ids.push((await changeService(client, name, (spec) => scaledTo(spec, count))).id);
        shell.print(`${name} scaled to ${count}`);
      });
      const waiting = (): Promise<void> =>
        eachOperand(values.detach === true ? [] : ids, (id) => untilConverged(client, shell, id, { quiet: false }));
      // Wait for the services that were scaled, even if others failed.
      await eachOperand([() => scaling, waiting], (step) => step());
    });
  },
});

const rm = command({
  operands: "SERVICE [SERVICE...]",
  min: 1,
  summary: "Remove one or more services; their tasks are stopped.",
  options: {},
  run: ({ operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = await findService(client, operand);
        await client.call(methods.RemoveService, RemoveServiceRequest.create({ serviceId: id }));
        shell.print(operand);
      }),
    ),
});

export const commands: Readonly<Record<string, Command>> = {
  create,
  ls,
  ps,
  inspect,
  update,
  rollback,
  scale,
  rm,
  plan,
  rebalance,
};
