/**
 * An operator with global services: creates, updates and removes them, and meanwhile drains, pauses and labels nodes. One node
 * always accepts tasks, so that every task can run in the end.
 */
import {
  Annotations,
  ControlService,
  GlobalService,
  ListNodesRequest,
  NodeSpec,
  NodeSpec_Availability,
  Placement,
  UpdateNodeRequest,
} from "../../proto/gen/messages.ts";
import { isManagersNode } from "../../machines/manager/role.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { simService, updatedAgain } from "./services.ts";

const zones = ["a", "b"] as const;

interface GlobalWorkloadOptions extends OperatorOptions {
  /** Hostname of the node that always accepts tasks. */
  readonly spared: string;
}

export class GlobalWorkload extends Operator<GlobalWorkloadOptions> {
  constructor(options: GlobalWorkloadOptions) {
    super(options, "workload.global", { isFirstAtOnce: true });
  }

  protected async operate(): Promise<void> {
    const kind = this.services.length === 0 ? 0 : this.random.next();
    if (kind < 0.2) await this.#create();
    else if (kind < 0.35) {
      const id = this.random.pick(this.services);
      await this.changeService(id, updatedAgain, `update global ${id}`);
    } else if (kind < 0.4) {
      const id = this.random.pick(this.services);
      await this.removeService(id, `remove global ${id}`);
    } else await this.#changeNode();
  }

  async #create(): Promise<void> {
    const name = this.newName("g");
    const constraints = this.random.chance(0.5) ? [`node.labels.zone==${this.random.pick(zones)}`] : [];
    const spec = simService({
      name,
      task: { placement: Placement.create({ constraints }) },
      global: GlobalService.create({}),
    });
    await this.createService(spec, `create global ${name} ${constraints.join()}`);
    this.mark("global.created");
  }

  async #changeNode(): Promise<void> {
    const { nodes } = await this.call(ControlService.methods.ListNodes, ListNodesRequest.create({}), "list nodes");
    // Managers stay drained, also demoted ones; a node that has not registered has no name yet.
    const workers = nodes.filter((node) => node.description !== null && !isManagersNode(node));
    if (workers.length === 0) return;
    const node = this.random.pick(workers);
    const [spec, name] = [node.spec ?? NodeSpec.create({}), node.description?.hostname ?? ""];
    const changed =
      name === this.options.spared || this.random.chance(0.35) ? this.#labelled(spec) : this.#opened(spec);
    const request = UpdateNodeRequest.create({
      nodeId: node.id,
      nodeVersion: node.meta?.version ?? null,
      spec: changed,
    });
    const what = `node ${name}: availability ${changed.availability}, zone ${changed.annotations?.labels["zone"]}`;
    await this.call(ControlService.methods.UpdateNode, request, what);
    if (changed.availability !== spec.availability) this.mark("node.availability");
    else if (changed.annotations?.labels["zone"] !== spec.annotations?.labels["zone"]) this.mark("node.label");
  }

  #labelled(spec: NodeSpec): NodeSpec {
    const annotations = spec.annotations ?? Annotations.create({});
    const labels = { ...annotations.labels, zone: this.random.pick(zones) };
    return NodeSpec.patch(spec, { annotations: Annotations.patch(annotations, { labels }) });
  }

  #opened(spec: NodeSpec): NodeSpec {
    const { ACTIVE, DRAIN, PAUSE } = NodeSpec_Availability;
    const others = [ACTIVE, DRAIN, PAUSE].filter((availability) => availability !== spec.availability);
    return NodeSpec.patch(spec, { availability: this.random.pick(others) });
  }
}
