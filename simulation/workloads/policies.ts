/** An operator of network policy: creates, changes and removes policies, tiers, profiles and host endpoints. */
import {
  encodePolicyObject,
  policyKinds,
  resourceNameOf,
  type PolicyKind,
  type PolicyObject,
} from "../../machines/policy/objects.ts";
import {
  Annotations,
  ControlService,
  CreateExtensionRequest,
  CreateResourceRequest,
  GetResourceRequest,
  HostEndpoint,
  NetworkPolicy,
  NetworkProfile,
  PolicyOrder,
  PolicyPeer,
  PolicyRule,
  PolicySelector,
  RemoveResourceRequest,
  Tier,
  UpdateResourceRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { Operator, type OperatorOptions } from "./operator.ts";

const methods = ControlService.methods;

const selectors = [
  "",
  "node.role == 'worker'",
  "service starts with 's'",
  "has(service)",
  "slot in {'1', '2'}",
  "!has(service) || slot == '1'",
  "service contains '1'",
] as const;

export class PolicyWorkload extends Operator {
  readonly #made: { readonly id: string; readonly kind: PolicyKind; readonly name: string }[] = [];
  #names = 0;

  constructor(options: OperatorOptions) {
    super(options, "workload.policies", { isFirstAtOnce: true });
  }

  protected async operate(): Promise<void> {
    const kind = this.#made.length === 0 ? 0 : this.random.next();
    if (kind < 0.5) await this.#create();
    else if (kind < 0.8) await this.#change(this.random.pick(this.#made));
    else await this.#remove(this.random.pick(this.#made));
  }

  async #create(): Promise<void> {
    const kind = this.random.pick<PolicyKind>([
      "NetworkPolicy",
      "NetworkPolicy",
      "Tier",
      "NetworkProfile",
      "HostEndpoint",
    ]);
    try {
      const extension = Annotations.create({ name: kind });
      await this.call(
        methods.CreateExtension,
        CreateExtensionRequest.create({ annotations: extension, description: policyKinds[kind] }),
        `know ${kind}`,
      );
    } catch (error) {
      if (!(error instanceof RpcError && error.code === Status.ALREADY_EXISTS)) throw error;
    }
    const name = `${this.random.pick(["front", "default", "x"])}${(this.#names += 1) % 3 === 0 ? "" : this.#names}`;
    const of = this.#object(kind, name);
    const { resource } = await this.call(
      methods.CreateResource,
      CreateResourceRequest.create({
        annotations: Annotations.create({ name: resourceNameOf(kind, name) }),
        kind,
        payload: encodePolicyObject(of),
      }),
      `make ${kind} ${name}`,
    );
    if (resource !== null) this.#made.push({ id: resource.id, kind, name });
  }

  async #change({
    id,
    kind,
    name,
  }: {
    readonly id: string;
    readonly kind: PolicyKind;
    readonly name: string;
  }): Promise<void> {
    const { resource } = await this.call(
      methods.GetResource,
      GetResourceRequest.create({ resourceId: id }),
      `get ${name}`,
    );
    await this.call(
      methods.UpdateResource,
      UpdateResourceRequest.create({
        resourceId: id,
        resourceVersion: resource?.meta?.version ?? null,
        annotations: resource?.annotations ?? null,
        payload: encodePolicyObject(this.#object(kind, name)),
      }),
      `change ${kind} ${name}`,
    );
  }

  async #remove({ id }: { readonly id: string }): Promise<void> {
    await this.call(methods.RemoveResource, RemoveResourceRequest.create({ resourceId: id }), `remove ${id}`);
    const at = this.#made.findIndex((each) => each.id === id);
    if (at >= 0) this.#made.splice(at, 1);
  }

  #object(kind: PolicyKind, name: string): PolicyObject {
    const random = this.random;
    const order = random.chance(0.5) ? PolicyOrder.create({ value: random.below(5) }) : null;
    switch (kind) {
      case "NetworkPolicy":
        return {
          kind,
          object: NetworkPolicy.create({
            name,
            tier: random.pick(["", "front"]),
            order,
            selector: random.pick(selectors),
            appliesIngress: true,
            ingress: [this.#rule(), this.#rule()],
          }),
        };
      case "Tier":
        return { kind, object: Tier.create({ name, order, defaultAction: random.pick(["deny", "pass"]) }) };
      case "NetworkProfile":
        return { kind, object: NetworkProfile.create({ name, ingress: [this.#rule()] }) };
      case "HostEndpoint":
        return {
          kind,
          object: HostEndpoint.create({ name, node: random.pick(["a1", "a2", "nobody"]), interface: "*" }),
        };
    }
  }

  #rule(): PolicyRule {
    const selector = PolicySelector.create({ text: this.random.pick(selectors) });
    const peer = PolicyPeer.create(this.random.chance(0.7) ? { selector } : { notSelector: selector });
    return PolicyRule.create({ action: this.random.pick(["allow", "deny"]), source: peer });
  }
}
