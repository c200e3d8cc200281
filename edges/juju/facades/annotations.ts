/** Annotations: labels of nodes, services and the cluster. A task has those of its service. */
import {
  Annotations,
  ClusterSpec,
  NodeSpec,
  type NodeSpec_Availability,
  UpdateClusterRequest,
  UpdateNodeRequest,
} from "../../../proto/gen/messages.ts";
import { annotationsOf, availabilities, availabilityKey } from "../entities/views.ts";
import type { Call, Facade, FacadeSources } from "../facade.ts";
import { RequestError } from "../request-error.ts";
import { keyed, type Json } from "../results.ts";
import { bulk } from "./bulk.ts";
import { mergedLabels, withLabels } from "./service-spec.ts";
import type { ServiceWrites } from "./service-writes.ts";
import { applicationOfTag, invalidTag, machineOfTag, notSupported, unitOf, type Subjects } from "./subjects.ts";

export class AnnotationWork {
  readonly #sources: FacadeSources;
  readonly #subjects: Subjects;
  readonly #services: ServiceWrites;

  constructor(sources: FacadeSources, subjects: Subjects, services: ServiceWrites) {
    this.#sources = sources;
    this.#subjects = subjects;
    this.#services = services;
  }

  of(tag: string): Json {
    const [noun] = tag.split("-", 1);
    switch (noun) {
      case "machine":
        return keyed(annotationsOf(this.#subjects.machine(machineOfTag(tag))));
      case "service":
      case "application":
        return keyed(annotationsOf(this.#subjects.application(applicationOfTag(tag))));
      case "unit":
        return keyed(this.#subjects.application(this.#subjects.unit(unitOf(tag)).application).labels);
      case "model":
      case "environment":
        return keyed(this.#subjects.cluster().spec?.annotations?.labels ?? {});
      default:
        throw invalidTag(tag, "entity");
    }
  }

  /** An empty value removes the annotation. */
  async set(call: Call, tag: string, pairs: ReadonlyMap<string, unknown>): Promise<void> {
    const labels = new Map<string, string>();
    for (const [key, value] of pairs) {
      if (typeof value !== "string") throw new RequestError(`annotation ${key} is not a string`, "bad request");
      if (key === "" || key.includes("=")) {
        throw new RequestError(`invalid annotation name ${JSON.stringify(key)}`, "not valid");
      }
      labels.set(key, value);
    }
    switch (tag.split("-", 1)[0]) {
      case "machine":
        return this.setMachine(call, machineOfTag(tag), labels);
      case "service":
      case "application":
        return this.#services.update(call, applicationOfTag(tag), (spec) => withLabels(spec, labels));
      case "unit":
        throw notSupported("units have the annotations of their application: set them there");
      case "model":
      case "environment":
        return this.setModel(call, labels);
      default:
        throw invalidTag(tag, "entity");
    }
  }

  async setMachine(call: Call, machine: string, labels: ReadonlyMap<string, string>): Promise<void> {
    const node = this.#subjects.node(machine);
    const spec = node.spec ?? NodeSpec.create({});
    const annotations = spec.annotations ?? Annotations.create({});
    const { [availabilityKey]: wanted, ...others } = Object.fromEntries(labels);
    const availability = wanted === undefined ? spec.availability : availabilityOf(wanted);
    await this.#sources.control.UpdateNode(
      UpdateNodeRequest.create({
        nodeId: node.id,
        nodeVersion: node.meta?.version ?? null,
        spec: NodeSpec.patch(spec, {
          availability,
          annotations: Annotations.patch(annotations, {
            labels: mergedLabels(annotations.labels, new Map(Object.entries(others))),
          }),
        }),
      }),
      call.rpc,
    );
  }

  /** An empty value removes the annotation. */
  async setModel(call: Call, labels: ReadonlyMap<string, string>): Promise<void> {
    const cluster = this.#subjects.cluster();
    const spec = cluster.spec ?? ClusterSpec.create({});
    const annotations = spec.annotations ?? Annotations.create({});
    await this.#sources.control.UpdateCluster(
      UpdateClusterRequest.create({
        clusterId: cluster.id,
        clusterVersion: cluster.meta?.version ?? null,
        spec: ClusterSpec.patch(spec, {
          annotations: Annotations.patch(annotations, { labels: mergedLabels(annotations.labels, labels) }),
        }),
      }),
      call.rpc,
    );
  }
}

/** Empty (removed) means `active`, the default. */
function availabilityOf(text: string): NodeSpec_Availability {
  const [number] = Object.entries(availabilities).find(([, name]) => name === (text || "active")) ?? [];
  if (number === undefined) {
    throw new RequestError(
      `invalid ${availabilityKey} ${JSON.stringify(text)}: expected active, pause or drain`,
      "not valid",
    );
  }
  return Number(number) as NodeSpec_Availability;
}

export function annotationFacades(work: AnnotationWork): readonly Facade[] {
  return [
    {
      type: "Annotations",
      versions: [1, 2],
      who: "users",
      scope: "model",
      id: "none",
      methods: {
        Get: {
          needs: "read-only",
          run: ({ params }) =>
            bulk(params.objects("entities"), (entity) => {
              const tag = entity.text("tag");
              return { entity: tag, annotations: work.of(tag) };
            }),
        },
        Set: {
          needs: "operator",
          run: (call) =>
            bulk(call.params.objects("annotations"), async (each) => {
              await work.set(call, each.text("entity", "entity-tag"), each.map("annotations"));
              return {};
            }),
        },
      },
    },
  ];
}
