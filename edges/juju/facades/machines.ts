/** MachineManager: machines join by themselves, and are removed here. */
import { RemoveNodeRequest } from "../../../proto/gen/messages.ts";
import type { Call, Facade, FacadeSources } from "../facade.ts";
import { bulk } from "./bulk.ts";
import { refusing } from "./parts.ts";
import { machineOfTag, type Subjects } from "./subjects.ts";

interface Parts {
  readonly sources: FacadeSources;
  readonly subjects: Subjects;
}

/** Same rule as `muster node rm`: without `force`, only a node that is down can be removed. */
export async function removeMachine(
  { sources, subjects }: Parts,
  call: Call,
  machine: string,
  force: boolean,
): Promise<void> {
  const { nodeId } = subjects.machine(machine);
  await sources.control.RemoveNode(RemoveNodeRequest.create({ nodeId, force }), call.rpc);
}

export function machineFacades(parts: Parts): readonly Facade[] {
  const joins = "machines join by themselves: see 'muster swarm join-token'";
  return [
    {
      type: "MachineManager",
      versions: [4, 6, 9, 10],
      shape: "V1",
      who: "users",
      scope: "model",
      id: "none",
      methods: {
        DestroyMachineWithParams: {
          needs: "admin",
          run: (call) =>
            bulk(call.params.texts("machine-tags"), async (tag) => {
              const machine = machineOfTag(tag);
              const units = [...parts.sources.feed.unitsOn(machine)].map(({ id }) => ({
                tag: `unit-${id.replace("/", "-")}`,
              }));
              if (!call.params.flag("dry-run")) await removeMachine(parts, call, machine, call.params.flag("force"));
              return { info: { "machine-id": machine, "destroyed-units": units } };
            }),
        },
        ...refusing({
          AddMachines: joins,
          ProvisioningScript: joins,
          UpgradeSeriesPrepare: "machines cannot be upgraded through this API",
        }),
      },
    },
  ];
}
