/**
 * Several clients that compete for the same resources at various managers: ports, networks, a secret, a config and the ingress
 * network are few, and operations request some of them while others remove them, release them, or roll back to a spec that
 * used them.
 */
import {
  Annotations,
  ConfigSpec,
  ControlService,
  CreateConfigRequest,
  CreateNetworkRequest,
  CreateSecretRequest,
  Driver,
  Duration,
  EndpointSpec,
  NetworkAttachmentConfig,
  NetworkSpec,
  PortConfig,
  RemoveConfigRequest,
  RemoveNetworkRequest,
  RemoveSecretRequest,
  ResourceReference,
  ResourceType,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  SecretSpec,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateServiceRequest_Rollback,
} from "../../proto/gen/messages.ts";
import { dynamicPorts } from "../../machines/allocation/ports.ts";
import { deadlineLabel, progressDeadlineLabel } from "../../machines/orchestration/rollout/settings.ts";
import { SimClient } from "./client.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { refusedPayload } from "./rollout.ts";
import { simService, simTask } from "./services.ts";

/** Requests of one operation, all sent together. */
const atOnceMax = 4;
const servicesMax = 3;
/** 0: any; the first of the ports that the allocator chooses are also requested by number. */
const ports = [0, 0, 9_001, 9_002, dynamicPorts.first, dynamicPorts.first + 1, dynamicPorts.first + 2] as const;
const labels = { [progressDeadlineLabel]: "10s", [deadlineLabel]: "120s" };
const goodPayload = 1;

/** Shared objects by name; their ids change when they are created again. */
type Shared = "net" | "in" | "key" | "settings";

export class ContentionWorkload extends Operator {
  readonly #people: readonly SimClient[];
  readonly #shared = new Map<Shared, string>();

  constructor(options: OperatorOptions) {
    super(options, "workload.contention", { isFirstAtOnce: true });
    this.#people = Array.from({ length: atOnceMax }, () => new SimClient(options, this.random));
  }

  protected async operate(): Promise<void> {
    const wishes = this.#people.slice(0, 2 + this.random.below(atOnceMax - 1)).map((person) => {
      const wish = this.#wish();
      return person.attempt(() => wish(person));
    });
    await Promise.all(wishes);
  }

  /** Drawn before anything is sent, so that answers do not shift the random stream. */
  #wish(): (person: SimClient) => Promise<void> {
    const service = this.services.length === 0 ? null : this.random.pick(this.services);
    const kind = this.random.next();
    const change = this.#change();
    if (kind < 0.2 && this.services.length < servicesMax) return (person) => this.#create(person, change);
    if (kind < 0.4 && service !== null) return (person) => this.#update(person, service, change);
    if (kind < 0.5 && service !== null) return (person) => this.#rollBack(person, service);
    if (kind < 0.55 && service !== null)
      return (person) => this.removeService(service, `remove contending ${service}`, person);
    const what = this.random.pick(["net", "in", "in", "key", "settings"] as const);
    const isDrop = this.random.chance(what === "in" ? 0.5 : 0.3);
    return (person) => (isDrop ? this.#drop(person, what) : this.#make(person, what));
  }

  #change(): (spec: ServiceSpec) => ServiceSpec {
    const one = () => this.random.chance(0.5);
    const [isOnNetwork, hasKey, hasSettings] = [one(), one(), one()];
    // If many services use it, the ingress network is never removed.
    const publishes = this.random.chance(0.35);
    const publishedPort = this.random.pick(ports);
    const payload = this.random.chance(0.3) ? refusedPayload : goodPayload;
    const reference = (what: Shared, resourceType: ResourceType) => {
      const resourceId = this.#shared.get(what);
      return resourceId === undefined ? [] : [ResourceReference.create({ resourceId, resourceType })];
    };
    const network = isOnNetwork ? this.#shared.get("net") : undefined;
    const task = {
      generic: simTask(payload),
      networks: network === undefined ? [] : [NetworkAttachmentConfig.create({ target: network })],
      resourceReferences: [
        ...(hasKey ? reference("key", ResourceType.SECRET) : []),
        ...(hasSettings ? reference("settings", ResourceType.CONFIG) : []),
      ],
    };
    const endpoint = EndpointSpec.create({
      ports: publishes ? [PortConfig.create({ targetPort: 80, publishedPort })] : [],
    });
    return (spec) => ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task ?? TaskSpec.create(), task), endpoint });
  }

  async #create(by: SimClient, change: (spec: ServiceSpec) => ServiceSpec): Promise<void> {
    const name = this.newName("c");
    const plain = simService({
      name,
      labels,
      task: {
        restart: RestartPolicy.create({
          condition: RestartPolicy_RestartCondition.ANY,
          delay: Duration.create({ seconds: 1 }),
          // A cluster in which something fails for ever never comes to rest.
          maxAttempts: 3,
        }),
      },
      replicas: 1 + this.random.below(2),
      update: UpdateConfig.create({
        parallelism: 1,
        monitor: Duration.create({ seconds: 2 }),
        failureAction: UpdateConfig_FailureAction.ROLLBACK,
      }),
    });
    const service = await this.createService(change(plain), `create contending ${name}`, by);
    if (service !== null) this.mark("contending.created");
  }

  async #update(by: SimClient, serviceId: string, change: (spec: ServiceSpec) => ServiceSpec): Promise<void> {
    if (await this.changeService(serviceId, change, `update contending ${serviceId}`, { by }))
      this.mark("contending.updated");
  }

  async #rollBack(by: SimClient, serviceId: string): Promise<void> {
    const how = { rollback: UpdateServiceRequest_Rollback.PREVIOUS };
    if (await this.changeService(serviceId, (spec) => spec, `roll contending ${serviceId} back`, { by, how }))
      this.mark("contending.back");
  }

  async #make(person: SimClient, what: Shared): Promise<void> {
    const id = await this.#made(person, what);
    if (id === undefined) return;
    this.#shared.set(what, id);
    this.mark(`contended.made.${what}`);
  }

  async #made(person: SimClient, what: Shared): Promise<string | undefined> {
    const data = new Uint8Array([1]);
    const said = `make ${what}`;
    const { methods } = ControlService;
    switch (what) {
      case "net":
      case "in": {
        const ingress = what === "in";
        // Two ingress networks may have different names.
        const annotations = Annotations.create({ name: ingress ? `in${this.random.below(2)}` : what });
        const spec = NetworkSpec.create({ annotations, driverConfig: Driver.create({ name: "overlay" }), ingress });
        const request = CreateNetworkRequest.create({ spec });
        return (await person.call(methods.CreateNetwork, request, said)).network?.id;
      }
      case "key": {
        const spec = SecretSpec.create({ annotations: Annotations.create({ name: what }), data });
        return (await person.call(methods.CreateSecret, CreateSecretRequest.create({ spec }), said)).secret?.id;
      }
      case "settings": {
        const spec = ConfigSpec.create({ annotations: Annotations.create({ name: what }), data });
        return (await person.call(methods.CreateConfig, CreateConfigRequest.create({ spec }), said)).config?.id;
      }
    }
  }

  /**
   * Often refused, because the object is in use or a rollback may need it. The cluster's own ingress network is found by name.
   */
  async #drop(person: SimClient, what: Shared): Promise<void> {
    const id = this.#shared.get(what) ?? "";
    const { methods } = ControlService;
    const said = `drop ${what}`;
    if (id === "" && what !== "in") return;
    switch (what) {
      case "net":
      case "in": {
        const name = id === "" ? "ingress" : "";
        await person.call(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId: id, name }), said);
        break;
      }
      case "key":
        await person.call(methods.RemoveSecret, RemoveSecretRequest.create({ secretId: id }), said);
        break;
      case "settings":
        await person.call(methods.RemoveConfig, RemoveConfigRequest.create({ configId: id }), said);
    }
    if (this.#shared.get(what) === id) this.#shared.delete(what);
    this.mark(`contended.dropped.${what}`);
  }
}
