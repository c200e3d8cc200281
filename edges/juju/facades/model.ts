/**
 * Requests about the controller and its models, which clients send first: there is one of each, the cluster (reference §7,
 * the helper results). The cloud is called `muster`.
 */
import type { Call, Facade, FacadeSources } from "../facade.ts";
import { series } from "../entities/platform.ts";
import { modelAccess, ownerTag, serverVersion } from "../model.ts";
import { RequestError } from "../request-error.ts";
import { bulk, type JsonFields } from "./bulk.ts";
import type { MachineView } from "../entities/views.ts";
import type { AnnotationWork } from "./annotations.ts";
import { configMethods } from "./model-config.ts";
import { modelUsers, modifyingAccess, modifyingControllerAccess, ownLastConnection } from "./users.ts";

const cloud = "muster";
/** The ModelInfo of the model. */
export function modelInfo(sources: FacadeSources, { session }: Call): JsonFields {
  const { machines, model } = sources.feed.view();
  const version = serverVersion(session.clientMajor);
  return {
    name: model.name,
    type: "iaas",
    uuid: model.id,
    "controller-uuid": model.controllerUuid,
    "is-controller": true,
    "provider-type": cloud,
    "cloud-tag": `cloud-${cloud}`,
    "cloud-region": "",
    "owner-tag": ownerTag,
    life: "alive",
    status: { status: "available", info: "", data: {}, since: null },
    users: modelUsers(sources, session),
    machines: machines.map(machineInfo),
    sla: { level: "unsupported", owner: "" },
    "agent-version": version,
    // Clients of 2.x read the former, those of 3.x the latter.
    "default-series": series,
    "default-base": "ubuntu@22.04/stable",
    "supported-features": [],
    "secret-backends": [],
  };
}

/** A short ModelInfo, without the machines and users. */
function modelSummary(sources: FacadeSources, { session }: Call): JsonFields {
  const { applications, machines, model, units } = sources.feed.view();
  const { identity } = session;
  return {
    name: model.name,
    uuid: model.id,
    type: "iaas",
    "controller-uuid": model.controllerUuid,
    "is-controller": true,
    "provider-type": cloud,
    "cloud-tag": `cloud-${cloud}`,
    "owner-tag": ownerTag,
    life: "alive",
    status: { status: "available", info: "", data: {}, since: null },
    "user-access": identity.kind === "user" ? modelAccess[identity.role] : "",
    "last-connection": ownLastConnection(sources, session),
    counts: [
      { entity: "machines", count: machines.length },
      { entity: "applications", count: applications.length },
      { entity: "units", count: units.length },
    ],
    sla: { level: "unsupported", owner: "" },
    "agent-version": serverVersion(session.clientMajor),
    "default-series": series,
  };
}

/** A model's state with its machines and applications. Throws RequestError. */
function modelStatus({ feed }: FacadeSources, tag: string): JsonFields {
  const { applications, machines, model, units } = feed.view();
  if (tag !== `model-${model.id}`) throw new RequestError(`model ${JSON.stringify(tag)} not found`, "not found");
  return {
    "model-tag": tag,
    life: "alive",
    type: "iaas",
    "hosted-machine-count": machines.length,
    "application-count": applications.length,
    "unit-count": units.length,
    "owner-tag": ownerTag,
    applications: applications.map(({ id }) => ({ name: id })),
    machines: machines.map(machineInfo),
  };
}

/** A machine in ModelInfo. */
function machineInfo({ id, hostname, isManager, words, cores, memoryMib, architecture }: MachineView): JsonFields {
  return {
    id,
    "instance-id": hostname,
    "display-name": hostname,
    status: words.agent.current,
    message: words.agent.message,
    "has-vote": isManager,
    "wants-vote": isManager,
    hardware: { ...(architecture === "" ? {} : { arch: architecture }), cores, mem: memoryMib },
  };
}

export function modelFacades(sources: FacadeSources, annotations: AnnotationWork): readonly Facade[] {
  const { feed } = sources;

  const listed = ({ session }: Call): JsonFields => {
    const { model } = feed.view();
    return {
      "user-models": [
        {
          model: { name: model.name, uuid: model.id, type: "iaas", "owner-tag": ownerTag },
          "last-connection": ownLastConnection(sources, session),
        },
      ],
    };
  };

  const modelManager: Facade = {
    type: "ModelManager",
    versions: [5, 9, 10],
    shape: "V1",
    who: "users",
    id: "none",
    methods: {
      ModelInfo: {
        needs: "read-only",
        run: (call) =>
          bulk(call.params.objects("entities"), (entity) => {
            const tag = entity.text("tag");
            if (tag !== `model-${feed.view().model.id}`) {
              throw new RequestError(`model ${JSON.stringify(tag)} not found`, "not found");
            }
            return { result: modelInfo(sources, call) };
          }),
      },
      ListModelSummaries: {
        needs: "read-only",
        run: (call) => ({ results: [{ result: modelSummary(sources, call) }] }),
      },
      ModifyModelAccess: modifyingAccess(sources),
      ListModels: { needs: "read-only", run: listed },
      ModelStatus: {
        needs: "read-only",
        async run({ params }) {
          // The only bulk request whose reply has another key than `results`.
          const asked = params.objects("entities");
          const { results } = await bulk(asked, (entity) => modelStatus(sources, entity.text("tag")));
          return { models: results };
        },
      },
    },
  };

  const modelConfig: Facade = {
    type: "ModelConfig",
    versions: [1, 2, 3],
    shape: "V1",
    who: "users",
    id: "none",
    methods: {
      ...configMethods(sources, annotations),
    },
  };

  const controller: Facade = {
    type: "Controller",
    versions: [9, 11],
    shape: "V1",
    who: "users",
    id: "none",
    methods: {
      ControllerVersion: {
        needs: "read-only",
        run: ({ session }) => ({ version: serverVersion(session.clientMajor), "git-commit": "" }),
      },
      ControllerConfig: {
        needs: "read-only",
        run: () => ({ config: { "controller-uuid": feed.view().model.controllerUuid } }),
      },
      AllModels: { needs: "read-only", run: listed },
      ModifyControllerAccess: modifyingControllerAccess(sources),
    },
  };

  return [modelManager, modelConfig, controller];
}
