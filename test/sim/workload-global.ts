/**
 * An operator with global services: creates, updates and removes them, and meanwhile drains, pauses and labels nodes. One node
 * always accepts tasks, so that every task can run in the end.
 */
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  GenericRuntimeSpec,
  GetServiceRequest,
  GlobalService,
  ListNodesRequest,
  NodeSpec,
  NodeSpec_Availability,
  Placement,
  RemoveServiceRequest,
  ServiceSpec,
  TaskSpec,
  UpdateNodeRequest,
  UpdateServiceRequest,
} from "../../proto/gen/messages.ts";
import { isManagersNode } from "../../machines/manager/role.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { Operations, type OperationsOptions } from "./operations.ts";
import { taskKind } from "./workload.ts";

const zones = ["a", "b"] as const;

export interface GlobalWorkloadOptions extends ClientOptions, OperationsOptions {
  /** Hostname of the node that always accepts tasks. */
  readonly spared: string;
}

export class GlobalWorkload {
  readonly #options: GlobalWorkloadOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  readonly #operations: Operations;
  readonly #services: string[] = [];
  #names = 0;

  constructor(options: GlobalWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.global");
    this.#client = new SimClient(options, this.#random);
    this.#operations = new Operations(options, this.#random, this.#client);
  }

  get isDone(): boolean {
    return this.#operations.areDone;
  }

  start(): void {
    this.#operations.start(() => this.#operate(), true);
  }

  async #operate(): Promise<void> {
    const kind = this.#services.length === 0 ? 0 : this.#random.next();
    if (kind < 0.2) await this.#create();
    else if (kind < 0.35) await this.#update(this.#random.pick(this.#services));
    else if (kind < 0.4) await this.#remove(this.#random.pick(this.#services));
    else await this.#changeNode();
  }

  async #create(): Promise<void> {
    const name = `g${(this.#names += 1)}`;
    const constraints = this.#random.chance(0.5) ? [`node.labels.zone==${this.#random.pick(zones)}`] : [];
    const spec = ServiceSpec.create({
      annotations: Annotations.create({ name }),
      task: TaskSpec.create({
        generic: GenericRuntimeSpec.create({
          kind: taskKind,
          payload: Any.create({ type_url: "sim", value: new Uint8Array([1]) }),
        }),
        placement: Placement.create({ constraints }),
      }),
      global: GlobalService.create({}),
    });
    const request = CreateServiceRequest.create({ spec });
    const { service } = await this.#client.call(
      ControlService.methods.CreateService,
      request,
      `create global ${name} ${constraints.join()}`,
    );
    if (service !== null) this.#services.push(service.id);
    this.#options.trace.mark("global.created");
  }

  async #update(serviceId: string): Promise<void> {
    const { service } = await this.#client.call(
      ControlService.methods.GetService,
      GetServiceRequest.create({ serviceId }),
      `get ${serviceId}`,
    );
    const [task, version] = [service?.spec?.task ?? null, service?.meta?.version ?? null];
    if (service?.spec == null || task === null) return;
    const spec = ServiceSpec.patch(service.spec, {
      task: TaskSpec.patch(task, { forceUpdate: task.forceUpdate + 1 }),
    });
    const request = UpdateServiceRequest.create({ serviceId, serviceVersion: version, spec });
    await this.#client.call(ControlService.methods.UpdateService, request, `update global ${serviceId}`);
  }

  async #remove(serviceId: string): Promise<void> {
    const request = RemoveServiceRequest.create({ serviceId });
    await this.#client.call(ControlService.methods.RemoveService, request, `remove global ${serviceId}`);
    this.#services.splice(this.#services.indexOf(serviceId), 1);
  }

  async #changeNode(): Promise<void> {
    const { nodes } = await this.#client.call(
      ControlService.methods.ListNodes,
      ListNodesRequest.create({}),
      "list nodes",
    );
    // Managers stay drained, also demoted ones; a node that has not registered has no name yet.
    const workers = nodes.filter((node) => node.description !== null && !isManagersNode(node));
    if (workers.length === 0) return;
    const node = this.#random.pick(workers);
    const [spec, name] = [node.spec ?? NodeSpec.create({}), node.description?.hostname ?? ""];
    const changed =
      name === this.#options.spared || this.#random.chance(0.35) ? this.#labelled(spec) : this.#opened(spec);
    const request = UpdateNodeRequest.create({
      nodeId: node.id,
      nodeVersion: node.meta?.version ?? null,
      spec: changed,
    });
    const what = `node ${name}: availability ${changed.availability}, zone ${changed.annotations?.labels["zone"]}`;
    await this.#client.call(ControlService.methods.UpdateNode, request, what);
    if (changed.availability !== spec.availability) this.#options.trace.mark("node.availability");
    else if (changed.annotations?.labels["zone"] !== spec.annotations?.labels["zone"])
      this.#options.trace.mark("node.label");
  }

  #labelled(spec: NodeSpec): NodeSpec {
    const annotations = spec.annotations ?? Annotations.create({});
    const labels = { ...annotations.labels, zone: this.#random.pick(zones) };
    return NodeSpec.patch(spec, { annotations: Annotations.patch(annotations, { labels }) });
  }

  #opened(spec: NodeSpec): NodeSpec {
    const { ACTIVE, DRAIN, PAUSE } = NodeSpec_Availability;
    const others = [ACTIVE, DRAIN, PAUSE].filter((availability) => availability !== spec.availability);
    return NodeSpec.patch(spec, { availability: this.#random.pick(others) });
  }
}
