/** An operator who demotes managers and promotes them again; the cluster decides which requests to refuse. */
import {
  ControlService,
  ListNodesRequest,
  NodeRole,
  NodeSpec,
  UpdateNodeRequest,
  type Node,
} from "../../proto/gen/messages.ts";
import { isDemoted, isManagersNode } from "../../machines/manager/role.ts";
import { Operator, type OperatorOptions } from "./operator.ts";

/** Interval between attempts to promote all former managers, in milliseconds. */
const retryMs = 1_000;

export class RoleWorkload extends Operator {
  #isRestoring = false;

  constructor(options: OperatorOptions) {
    super(options, "workload.roles", { isFirstAtOnce: false });
  }

  override get isDone(): boolean {
    return super.isDone && !this.#isRestoring;
  }

  /** Promotes all demoted managers, after all other operations. */
  restore(): void {
    this.#isRestoring = true;
    const attempt = (): void => {
      void this.client
        .attempt(async () => {
          if (!super.isDone) return;
          const demoted = (await this.#managers()).filter(isDemoted);
          for (const node of demoted) await this.#change(node);
          this.#isRestoring = false;
        })
        .then(() => {
          if (this.#isRestoring) this.options.ports.clock.after(retryMs, attempt);
        });
    };
    attempt();
  }

  protected async operate(): Promise<void> {
    const managers = await this.#managers();
    if (managers.length === 0) return;
    const both = managers.length > 1 && this.random.chance(0.2);
    const node = this.random.pick(managers);
    // Two requests at the same time, of which one must be refused.
    const other = managers.find(({ id }) => id !== node.id);
    await Promise.all(
      [node, ...(both && other !== undefined ? [other] : [])].map((each) =>
        this.client.attempt(() => this.#change(each)),
      ),
    );
  }

  async #managers(): Promise<readonly Node[]> {
    const request = ListNodesRequest.create();
    const { nodes } = await this.call(ControlService.methods.ListNodes, request, "look at roles");
    return nodes.filter(isManagersNode);
  }

  async #change(node: Node): Promise<void> {
    const { id, description, meta, spec } = node;
    const isPromotion = isDemoted(node);
    const desiredRole = isPromotion ? NodeRole.MANAGER : NodeRole.WORKER;
    const request = UpdateNodeRequest.create({
      nodeId: id,
      nodeVersion: meta?.version ?? null,
      spec: NodeSpec.patch(spec ?? NodeSpec.create(), { desiredRole }),
    });
    const what = `${isPromotion ? "promote" : "demote"} ${description?.hostname ?? id}`;
    await this.call(ControlService.methods.UpdateNode, request, what);
    this.mark(isPromotion ? "role.promoted" : "role.demoted");
  }
}
