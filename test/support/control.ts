/** A manager with Control, and services and nodes for its requests. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import { createControl } from "../../actors/control.ts";
import { createGrpcServer } from "../../edges/grpc/server.ts";
import {
  Annotations,
  ContainerSpec,
  ControlService,
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
import * as pki from "../../lib/pki/index.ts";
import { call, testManager } from "./manager.ts";

export function world() {
  const manager = testManager();
  const control = createControl(manager.env, { leaderId: () => "manager1", authority: pki }).handlers;
  return { ...manager, manager, control };
}

/** The same for a created cluster, with Control on a socket: for tests that call it as a client does. */
export async function servedControl(t: ExecutionContext) {
  const founded = world();
  await bootstrapCluster(founded.env, pki, { advertise: "192.0.2.1:2377" });
  const server = createGrpcServer({ telemetry: founded.env.telemetry });
  server.add(ControlService, founded.control);
  const folder = mkdtempSync(join(tmpdir(), "muster-"));
  const socket = join(folder, "control.sock");
  await server.listenUnix(socket);
  t.teardown(async () => {
    await server.close(0);
    rmSync(folder, { recursive: true, force: true });
  });
  return { ...founded, socket };
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
