/**
 * Entities in the deltas of all-watchers, in both shapes (reference §6.1). Keys that stock clients read without checking are
 * always present; optional empty ones are omitted.
 */
import type { Shape } from "../shape.ts";
import { ownerTag } from "../model.ts";
import { machineTag } from "./names.ts";
import { base, entityVersion, series } from "./platform.ts";
import { actionName } from "./views.ts";
import type {
  ActionView,
  AnnotationView,
  ApplicationView,
  MachineView,
  ModelView,
  Port,
  RelationView,
  UnitView,
  View,
} from "./views.ts";
import type { Word } from "./words.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The kind's name in each generation. */
export function kindIn(shape: Shape, { kind }: Pick<View, "kind">): string {
  return shape === "V0" && kind === "application" ? "service" : kind;
}

/** 1.x had no model and no action among its entities. */
export function existsIn(shape: Shape, { kind }: Pick<View, "kind">): boolean {
  return shape === "V1" || (kind !== "model" && kind !== "action");
}

/** `modelUuid`: part of every entity of the newer shape. */
export function entityIn(shape: Shape, view: View, modelUuid: string): Fields {
  return shape === "V0" ? oldEntity(view) : { "model-uuid": modelUuid, ...newEntity(view) };
}

function newEntity(view: View): Fields {
  switch (view.kind) {
    case "model":
      return newModel(view);
    case "machine":
      return newMachine(view);
    case "application":
      return newApplication(view);
    case "unit":
      return newUnit(view);
    case "relation":
      return newRelation(view);
    case "annotation":
      return { tag: annotatedTag("V1", view), annotations: view.labels };
    case "action":
      return newAction(view);
  }
}

function oldEntity(view: View): Fields {
  switch (view.kind) {
    case "model":
      return { Name: view.name };
    case "machine":
      return oldMachine(view);
    case "application":
      return oldService(view);
    case "unit":
      return oldUnit(view);
    case "relation":
      return oldRelation(view);
    case "annotation":
      return { Tag: annotatedTag("V0", view), Annotations: view.labels };
    case "action":
      return { Id: view.id };
  }
}

function newAction({ id, receiver, status, message, enqueued, started, completed }: ActionView): Fields {
  return {
    id,
    receiver,
    name: actionName,
    status,
    message,
    enqueued,
    ...(started === "" ? {} : { started }),
    ...(completed === "" ? {} : { completed }),
  };
}

function annotatedTag(shape: Shape, { subject, subjectId }: AnnotationView): string {
  switch (subject) {
    case "machine":
      return machineTag(subjectId);
    case "application":
      return `${shape === "V0" ? "service" : "application"}-${subjectId}`;
    case "model":
      return `${shape === "V0" ? "environment" : "model"}-${subjectId}`;
  }
}

function status({ current, message }: Word, since: string): Fields {
  return { current, message, ...(since === "" ? {} : { since }), version: "" };
}

function newModel(view: ModelView): Fields {
  return {
    name: view.name,
    life: "alive",
    owner: ownerTag.slice("user-".length),
    "controller-uuid": view.controllerUuid,
    "is-controller": false,
    config: {},
    status: status({ current: "available", message: "" }, ""),
    constraints: {},
    sla: { level: "unsupported", owner: "" },
    type: "iaas",
    cloud: "muster",
    "cloud-region": "",
    version: entityVersion,
  };
}

function newMachine(view: MachineView): Fields {
  return {
    id: view.id,
    "instance-id": view.nodeId,
    "agent-status": status(view.words.agent, view.since),
    "instance-status": status(view.words.instance, view.since),
    life: "alive",
    base,
    series,
    "container-type": "",
    "supported-containers": [],
    "supported-containers-known": true,
    "hardware-characteristics": {
      arch: view.architecture,
      "cpu-cores": view.cores,
      mem: view.memoryMib,
    },
    jobs: view.isManager ? ["JobManageModel", "JobHostUnits"] : ["JobHostUnits"],
    addresses: addressesOf(view).map(({ value, type }) => ({ value, type, scope: "local-cloud" })),
    "has-vote": view.isManager,
    "wants-vote": view.isManager,
    hostname: view.hostname,
  };
}

function oldMachine(view: MachineView): Fields {
  const { agent } = view.words;
  return {
    Id: view.id,
    InstanceId: view.nodeId,
    Status: agent.current,
    StatusInfo: agent.message,
    StatusData: {},
    Life: "alive",
    Series: series,
    SupportedContainers: [],
    SupportedContainersKnown: true,
    HardwareCharacteristics: { Arch: view.architecture, Mem: view.memoryMib, CpuCores: view.cores },
    Jobs: view.isManager ? ["JobManageEnviron", "JobHostUnits"] : ["JobHostUnits"],
    Addresses: addressesOf(view).map(({ value, type }) => ({
      Value: value,
      Type: type,
      NetworkName: "",
      Scope: "local-cloud",
    })),
    HasVote: view.isManager,
    WantsVote: view.isManager,
  };
}

function addressesOf({ address }: MachineView): readonly { readonly value: string; readonly type: string }[] {
  return address === "" ? [] : [{ value: address, type: address.includes(":") ? "ipv6" : "ipv4" }];
}

/** Juju's constraints of an application; those not set are omitted. */
export function constraintsOf(view: ApplicationView): Fields {
  return {
    ...(view.architecture === "" ? {} : { arch: view.architecture }),
    ...(view.cores === 0 ? {} : { cores: view.cores }),
    ...(view.memoryMib === 0 ? {} : { mem: view.memoryMib }),
    ...(view.tags.length === 0 ? {} : { tags: view.tags }),
  };
}

function newApplication(view: ApplicationView): Fields {
  return {
    name: view.id,
    exposed: view.isExposed,
    "charm-url": view.charmUrl,
    "owner-tag": ownerTag,
    life: view.life,
    "min-units": 0,
    constraints: constraintsOf(view),
    config: view.env,
    subordinate: false,
    status: status(view.word, view.since),
    "workload-version": view.runs,
  };
}

function oldService(view: ApplicationView): Fields {
  return {
    Name: view.id,
    Exposed: view.isExposed,
    CharmURL: view.charmUrl,
    OwnerTag: ownerTag,
    Life: view.life,
    MinUnits: 0,
    Constraints: constraintsOf(view),
    Config: view.env,
    Subordinate: false,
    Status: {
      Current: view.word.current,
      Message: view.word.message,
      Since: view.since || null,
      Version: "",
      Data: {},
    },
  };
}

const newPort = ({ protocol, number }: Port): Fields => ({ protocol, number });
const newRange = ({ protocol, number }: Port): Fields => ({ "from-port": number, "to-port": number, protocol });

function newUnit(view: UnitView): Fields {
  return {
    name: view.id,
    application: view.application,
    base,
    series,
    "charm-url": view.charmUrl,
    life: view.life,
    "public-address": view.publicAddress,
    "private-address": view.privateAddress,
    "machine-id": view.machine,
    ports: view.ports.map(newPort),
    "port-ranges": view.ports.map(newRange),
    principal: "",
    subordinate: false,
    "workload-status": status(view.words.workload, view.since),
    "agent-status": status(view.words.agent, view.since),
  };
}

function oldUnit(view: UnitView): Fields {
  const { agent, workload, old } = view.words;
  const since = view.since || null;
  return {
    Name: view.id,
    Service: view.application,
    Series: series,
    CharmURL: view.charmUrl,
    PublicAddress: view.publicAddress,
    PrivateAddress: view.privateAddress,
    MachineId: view.machine,
    Ports: view.ports.map(({ protocol, number }) => ({ Protocol: protocol, Number: number })),
    PortRanges: view.ports.map(({ protocol, number }) => ({ FromPort: number, ToPort: number, Protocol: protocol })),
    Subordinate: false,
    Status: old,
    StatusInfo: workload.message,
    StatusData: {},
    WorkloadStatus: { Current: workload.current, Message: workload.message, Since: since, Version: "", Data: {} },
    AgentStatus: { Current: agent.current, Message: agent.message, Since: since, Version: "", Data: {} },
  };
}

/** All applications on a network are peers. */
function newRelation(view: RelationView): Fields {
  return {
    key: view.id,
    id: view.number,
    endpoints: view.applications.map((application) => ({
      "application-name": application,
      relation: { name: "network", role: "peer", interface: view.driver, optional: false, limit: 0, scope: "global" },
    })),
  };
}

function oldRelation(view: RelationView): Fields {
  return {
    Key: view.id,
    Id: view.number,
    Endpoints: view.applications.map((application) => ({
      ServiceName: application,
      Relation: { Name: "network", Role: "peer", Interface: view.driver, Optional: false, Limit: 0, Scope: "global" },
    })),
  };
}
