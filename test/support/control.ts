/** A manager with Control, and services and nodes to ask it about. */
import { createControl } from "../../actors/control.ts";
import {
  Annotations,
  ContainerSpec,
  CreateServiceRequest,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  ReplicatedService,
  type Service,
  ServiceSpec,
  TaskSpec,
  UpdateServiceRequest,
} from "../../proto/gen/messages.ts";
import * as pki from "../../runtime/pki/index.ts";
import { call, testManager } from "./manager.ts";

export function world() {
  const manager = testManager();
  const control = createControl(manager.env, { leaderId: () => "manager1", authority: pki }).handlers;
  return { ...manager, manager, control };
}

export function spec(name: string, replicas = 1, image = "bb:1"): ServiceSpec {
  return ServiceSpec.create({
    annotations: Annotations.create({ name, labels: { team: "a" } }),
    task: TaskSpec.create({ container: ContainerSpec.create({ image }) }),
    replicated: ReplicatedService.create({ replicas }),
  });
}

export async function createdService(
  control: ReturnType<typeof world>["control"],
  wanted: ServiceSpec,
): Promise<Service> {
  const { service } = await control.CreateService(CreateServiceRequest.create({ spec: wanted }), call());
  if (service === null) throw new Error("no service in the answer");
  return service;
}

export function updateOf(service: Service, fields: Partial<UpdateServiceRequest>): UpdateServiceRequest {
  return UpdateServiceRequest.create({
    serviceId: service.id,
    serviceVersion: service.meta?.version ?? null,
    spec: service.spec,
    ...fields,
  });
}

export function workerNode(id: string, fields: Partial<Node> = {}): Node {
  return Node.create({
    id,
    spec: NodeSpec.create({ membership: 1 }),
    description: NodeDescription.create({ hostname: `host-${id}` }),
    status: NodeStatus.create({ state: NodeStatus_State.READY }),
    ...fields,
  });
}
