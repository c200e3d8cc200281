/**
 * Client: status and watching in every version; in 1.x and before also changes, for which later versions have Application and
 * MachineManager.
 */
import type { Call, Facade, Method } from "../facade.ts";
import { allNews } from "../feed/news.ts";
import { seesValues } from "../redaction.ts";
import { modelName, modelUuid } from "../model.ts";
import type { Params } from "../params.ts";
import { verbatim, type Json } from "../results.ts";
import { constraintsOf } from "../entities/deltas.ts";
import { platformName, series } from "../entities/platform.ts";
import { runResult } from "./actions.ts";
import { removeMachine } from "./machines.ts";
import { modelInfo } from "./model.ts";
import { modelConstraintMethods, modelConstraints } from "./model-constraints.ts";
import { configOf, refusing, type ClientParts } from "./parts.ts";
import { exposed, unexposed, withConfig, withImage } from "./service-spec.ts";
import { withConstraints } from "./constraints.ts";
import type { ServiceWrites } from "./service-writes.ts";
import { fullStatus, instances } from "./status.ts";
import { notSupported, unitOf } from "./subjects.ts";
import { addWatcher } from "./watchers.ts";

/** Requests of 1.x clients that this cluster does not support, with the reason. */
const refusals: Readonly<Record<string, string>> = {
  AddRelation: "services are related through networks: attach both to one network",
  DestroyRelation: "services are related through networks: detach one from the network",
  CharmInfo: "charms are not supported: an application is a container image",
  AddCharm: "charms are not supported: an application is a container image",
  ServiceSetYAML: "set options one by one with ServiceSet",
  AddMachines: "machines join by themselves: see 'muster swarm join-token'",
  AddMachinesV2: "machines join by themselves: see 'muster swarm join-token'",
  ProvisioningScript: "machines join by themselves: see 'muster swarm join-token'",
  RunOnAllMachines: "commands cannot be run on machines",
  EnvironmentSet: "change the cluster's settings with 'muster swarm update'",
  EnvironmentUnset: "change the cluster's settings with 'muster swarm update'",
  SetEnvironAgentVersion: "agents cannot be upgraded through this API",
};

export function clientFacades(parts: ClientParts): readonly Facade[] {
  const { sources, annotations } = parts;
  const constraints = modelConstraintMethods(sources, annotations);
  const seeing: Record<string, Method> = {
    FullStatus: { needs: "read-only", run: fullStatus(sources) },
    WatchAll: {
      needs: "read-only",
      run(call) {
        const id = addWatcher(
          sources,
          call,
          "AllWatcher",
          allNews(sources.feed, call.shape, () => seesValues(call.session)),
        );
        return call.shape === "V0" ? { AllWatcherId: id } : { "watcher-id": id };
      },
    },
  };
  return [
    {
      type: "Client",
      versions: [1, 2, 5, 6, 7],
      shape: "V1",
      who: "users",
      scope: "model",
      id: "none",
      methods: {
        ...seeing,
        // Later versions have it in ModelManager.
        ModelInfo: { needs: "read-only", versions: [1, 2], run: (call) => modelInfo(sources, call) },
        // Up to 2.9; later versions have it in ModelConfig.
        GetModelConstraints: { ...constraints.get, versions: [1, 2, 5] },
        SetModelConstraints: { ...constraints.set, versions: [1, 2, 5] },
      },
    },
    {
      type: "Client",
      versions: [0],
      shape: "V0",
      who: "users",
      scope: "model",
      id: "none",
      methods: { ...seeing, ...doing(parts), ...refusing(refusals) },
    },
  ];
}

function doing(parts: ClientParts): Record<string, Method> {
  const { sources, subjects, services, annotations, actions } = parts;
  const serviceOf = ({ params }: Call): string => params.text("service-name", "service");
  const changing = (change: Parameters<ServiceWrites["update"]>[2]) => ({
    needs: "operator" as const,
    run: async (call: Call): Promise<Json> => {
      await services.update(call, serviceOf(call), change);
      return {};
    },
  });
  return {
    Status: { needs: "read-only", run: () => instances(sources) },
    ServiceDeploy: {
      needs: "operator",
      async run(call) {
        const { params } = call;
        const machine = params.text("to-machine-spec");
        await services.deploy(call, {
          name: params.text("service-name"),
          charmUrl: params.text("charm-url"),
          units: params.integer("num-units"),
          config: params.map("config"),
          constraints: params.object("constraints"),
          machines: machine === "" ? [] : [machine],
          networks: params.texts("networks").map((network) => network.replace(/^network-/, "")),
        });
        return {};
      },
    },
    ServiceDestroy: {
      needs: "operator",
      async run(call) {
        await services.remove(call, serviceOf(call));
        return {};
      },
    },
    AddServiceUnits: {
      needs: "operator",
      async run(call) {
        if (call.params.text("to-machine-spec") !== "") throw notSupported("units cannot be placed individually");
        return { units: await services.addUnits(call, serviceOf(call), call.params.integer("num-units") ?? 1) };
      },
    },
    DestroyServiceUnits: {
      needs: "operator",
      async run(call) {
        await services.removeUnits(call, call.params.texts("unit-names"));
        return {};
      },
    },
    ServiceExpose: changing(exposed),
    ServiceUnexpose: changing(unexposed),
    ServiceSetCharm: {
      needs: "operator",
      async run(call) {
        const image = call.params.text("charm-url");
        await services.update(call, serviceOf(call), (spec) => withImage(spec, image));
        return {};
      },
    },
    ServiceSet: {
      needs: "operator",
      async run(call) {
        const options = call.params.map("options");
        await services.update(call, serviceOf(call), (spec) => withConfig(spec, options));
        return {};
      },
    },
    ServiceUnset: {
      needs: "operator",
      async run(call) {
        const gone = new Map(call.params.texts("options").map((name) => [name, null]));
        await services.update(call, serviceOf(call), (spec) => withConfig(spec, gone));
        return {};
      },
    },
    ServiceGet: {
      needs: "read-only",
      run(call) {
        const view = subjects.application(serviceOf(call));
        return verbatim({
          Service: view.id,
          Charm: view.charmUrl,
          Config: configOf(view, call),
          Constraints: constraintsOf(view) as Json,
        });
      },
    },
    SetServiceConstraints: {
      needs: "operator",
      async run(call) {
        const constraints = call.params.object("constraints");
        await services.update(call, serviceOf(call), (spec) => withConstraints(spec, constraints));
        return {};
      },
    },
    GetServiceConstraints: {
      needs: "read-only",
      run: (call) => verbatim({ Constraints: constraintsOf(subjects.application(serviceOf(call))) as Json }),
    },
    GetEnvironmentConstraints: {
      needs: "read-only",
      run: () => verbatim({ Constraints: modelConstraints(sources.store) as Json }),
    },
    SetEnvironmentConstraints: modelConstraintMethods(sources, annotations).set,
    Resolved: {
      needs: "operator",
      async run(call) {
        await services.resolve(call, unitOf(call.params.text("unit-name")));
        return {};
      },
    },
    Run: {
      needs: "operator",
      run: async (call) => verbatim({ Results: (await actions.run(call)).map(runResult) }),
    },
    PublicAddress: { needs: "read-only", run: ({ params }) => address(parts, params, "public") },
    PrivateAddress: { needs: "read-only", run: ({ params }) => address(parts, params, "private") },
    DestroyMachines: {
      needs: "admin",
      async run(call) {
        for (const machine of call.params.texts("machine-names")) {
          await removeMachine(parts, call, machine, call.params.flag("force"));
        }
        return {};
      },
    },
    EnvironmentInfo: {
      needs: "read-only",
      run: () => {
        const uuid = modelUuid(subjects.cluster().id);
        return verbatim({
          DefaultSeries: series,
          ProviderType: platformName,
          Name: sources.feed.view().model.name || modelName,
          UUID: uuid,
          ServerUUID: uuid,
        });
      },
    },
    GetAnnotations: {
      needs: "read-only",
      run: ({ params }) => ({ annotations: annotations.of(params.text("tag")) }),
    },
    SetAnnotations: {
      needs: "operator",
      async run(call) {
        await annotations.set(call, call.params.text("tag"), call.params.map("pairs"));
        return {};
      },
    },
  };
}

/** The target is a machine number, a unit name or an address. */
function address({ subjects }: ClientParts, params: Params, which: "public" | "private"): Json {
  const target = params.text("target");
  if (!target.includes("/"))
    return verbatim({ [`${which === "public" ? "Public" : "Private"}Address`]: subjects.machine(target).address });
  const { publicAddress, privateAddress } = subjects.unit(target);
  return which === "public" ? { "public-address": publicAddress } : { "private-address": privateAddress };
}
