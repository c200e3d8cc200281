/** Application: deploys, changes and removes services for clients of 2.x and 3.x. */
import { constraintsOf } from "../entities/deltas.ts";
import { baseChannel, baseName, series } from "../entities/platform.ts";
import type { ApplicationView } from "../entities/views.ts";
import { unitTag } from "../entities/names.ts";
import type { Facade, Method } from "../facade.ts";
import type { Params } from "../params.ts";
import { verbatim, type Json } from "../results.ts";
import { bulk, type JsonFields } from "./bulk.ts";
import { configOf, refusing, type ClientParts } from "./parts.ts";
import { withConstraints } from "./constraints.ts";
import { exposed, unexposed, withConfig, withImage } from "./service-spec.ts";
import { applicationOfTag, unitOf } from "./subjects.ts";

const related = "applications are related through networks: attach both to one network";
const noCharms = "charms are not supported: an application is a container image";

export function applicationFacades(parts: ClientParts): readonly Facade[] {
  return [
    {
      type: "Application",
      versions: [13, 14, 15, 16, 17, 18, 19, 20],
      shape: "V1",
      who: "users",
      scope: "model",
      id: "none",
      methods: {
        ...reading(parts),
        ...writing(parts),
        ...refusing({
          AddRelation: related,
          DestroyRelation: related,
          SetCharms: noCharms,
          DeployFromRepository: noCharms,
          MergeBindings: "change a service's networks with 'muster service update'",
          Consume: "there is only one model",
        }),
      },
    },
  ];
}

function reading({ subjects }: ClientParts): Record<string, Method> {
  return {
    ApplicationsInfo: {
      needs: "read-only",
      run: ({ params }) =>
        bulk(params.objects("entities"), (entity) => {
          const view = subjects.application(applicationOfTag(entity.text("tag")));
          return { result: { tag: `application-${view.id}`, ...infoOf(view) } };
        }),
    },
    UnitsInfo: {
      needs: "read-only",
      run: ({ params }) =>
        bulk(params.objects("entities"), (entity) => {
          const unit = subjects.unit(unitOf(entity.text("tag")));
          return {
            result: {
              tag: unitTag(unit.id),
              "workload-version": unit.runs,
              machine: unit.machine,
              "opened-ports": unit.ports.map(({ number, protocol }) => `${number}/${protocol}`),
              "public-address": unit.publicAddress,
              address: unit.privateAddress,
              charm: unit.charmUrl,
              life: unit.life,
              "provider-id": unit.taskId,
            },
          };
        }),
    },
    Get: {
      needs: "read-only",
      run(call) {
        const view = subjects.application(call.params.text("application"));
        return {
          application: view.id,
          charm: view.charmUrl,
          config: configOf(view, call),
          constraints: verbatim(constraintsOf(view) as Json),
          base: { name: baseName, channel: baseChannel },
          series,
          channel: "",
          "endpoint-bindings": {},
          "application-config": {},
        };
      },
    },
    GetConfig: {
      needs: "read-only",
      run: (call) =>
        bulk(call.params.objects("entities"), (entity) => ({
          config: configOf(subjects.application(applicationOfTag(entity.text("tag"))), call),
        })),
    },
    GetConstraints: {
      needs: "read-only",
      run: ({ params }) =>
        bulk(params.objects("entities"), (entity) => ({
          constraints: verbatim(constraintsOf(subjects.application(applicationOfTag(entity.text("tag")))) as Json),
        })),
    },
  };
}

function infoOf(view: ApplicationView): JsonFields {
  return {
    charm: view.charmUrl,
    base: { name: baseName, channel: baseChannel },
    series,
    channel: "",
    constraints: verbatim(constraintsOf(view) as Json),
    principal: true,
    exposed: view.isExposed,
    remote: false,
    life: view.life,
    "endpoint-bindings": {},
  };
}

function writing({ services }: ClientParts): Record<string, Method> {
  return {
    Deploy: {
      needs: "operator",
      run: (call) =>
        bulk(call.params.objects("applications"), async (wanted) => {
          await services.deploy(call, {
            name: wanted.text("application"),
            charmUrl: wanted.text("charm-url"),
            units: wanted.integer("num-units"),
            config: wanted.map("config"),
            constraints: wanted.object("constraints"),
            machines: wanted.objects("placement").map((each) => each.text("directive")),
            networks: boundNetworks(wanted),
          });
          return {};
        }),
    },
    DestroyApplication: {
      needs: "operator",
      run: (call) =>
        bulk(call.params.objects("applications"), async (each) => {
          const application = applicationOfTag(each.text("application-tag"));
          if (!each.flag("dry-run")) await services.remove(call, application);
          return { info: { "destroyed-storage": [], "detached-storage": [], "destroyed-units": [] } };
        }),
    },
    AddUnits: {
      needs: "operator",
      async run(call) {
        const { params } = call;
        return { units: await services.addUnits(call, params.text("application"), params.integer("num-units") ?? 1) };
      },
    },
    DestroyUnit: {
      needs: "operator",
      run: (call) =>
        bulk(call.params.objects("units"), async (each) => {
          if (!each.flag("dry-run")) await services.removeUnits(call, [unitOf(each.text("unit-tag"))]);
          return { info: { "destroyed-storage": [], "detached-storage": [] } };
        }),
    },
    ScaleApplications: {
      needs: "operator",
      run: (call) =>
        bulk(call.params.objects("applications"), async (each) => {
          const wanted = { scale: each.integer("scale"), change: each.integer("scale-change") || null };
          const scaled = await services.scale(call, applicationOfTag(each.text("application-tag")), wanted);
          return { info: { "num-units": scaled } };
        }),
    },
    SetCharm: {
      needs: "operator",
      async run(call) {
        const image = call.params.text("charm-url");
        await services.update(call, call.params.text("application"), (spec) => withImage(spec, image));
        return {};
      },
    },
    Expose: {
      needs: "operator",
      async run(call) {
        await services.update(call, call.params.text("application"), exposed);
        return {};
      },
    },
    Unexpose: {
      needs: "operator",
      async run(call) {
        await services.update(call, call.params.text("application"), unexposed);
        return {};
      },
    },
    SetConstraints: {
      needs: "operator",
      async run(call) {
        const constraints = call.params.object("constraints");
        await services.update(call, call.params.text("application"), (spec) => withConstraints(spec, constraints));
        return {};
      },
    },
    SetConfigs: {
      needs: "operator",
      run: (call) =>
        bulk(call.params.objects("args"), async (each) => {
          const config = each.map("config");
          await services.update(call, each.text("application"), (spec) => withConfig(spec, config));
          return {};
        }),
    },
    // In 2.9, for one application.
    Destroy: {
      needs: "operator",
      versions: [13],
      async run(call) {
        await services.remove(call, call.params.text("application"));
        return {};
      },
    },
    DestroyUnits: {
      needs: "operator",
      versions: [13],
      async run(call) {
        await services.removeUnits(call, call.params.texts("unit-names"));
        return {};
      },
    },
    Set: {
      needs: "operator",
      versions: [13],
      async run(call) {
        const options = call.params.map("options");
        await services.update(call, call.params.text("application"), (spec) => withConfig(spec, options));
        return {};
      },
    },
    Unset: {
      needs: "operator",
      versions: [13],
      async run(call) {
        const gone = new Map(call.params.texts("options").map((name) => [name, null]));
        await services.update(call, call.params.text("application"), (spec) => withConfig(spec, gone));
        return {};
      },
    },
    UnsetApplicationsConfig: {
      needs: "operator",
      run: (call) =>
        bulk(call.params.objects("args"), async (each) => {
          const gone = new Map(each.texts("options").map((name) => [name, null]));
          await services.update(call, each.text("application"), (spec) => withConfig(spec, gone));
          return {};
        }),
    },
    ResolveUnitErrors: {
      needs: "operator",
      run: (call) => {
        const tags = call.params.object("tags").objects("entities");
        return bulk(tags, async (each) => {
          await services.resolve(call, unitOf(each.text("tag")));
          return {};
        });
      },
    },
  };
}

/** A binding's space is a network; bindings without one select none. */
function boundNetworks(wanted: Params): readonly string[] {
  const networks = new Set<string>();
  for (const network of wanted.map("endpoint-bindings").values()) {
    if (typeof network === "string" && network !== "") networks.add(network);
  }
  return [...networks];
}
