/**
 * A simulated operator or client: a number of operations at random times, each abandoned when refused; and what operators of
 * services have in common.
 */
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  ControlService,
  CreateServiceRequest,
  GetServiceRequest,
  RemoveServiceRequest,
  UpdateServiceRequest,
  type Service,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { SimClient, type ClientOptions } from "./client.ts";

export interface OperatorOptions extends ClientOptions {
  readonly operations: number;
  /** The operations are spread over this many milliseconds. */
  readonly withinMs: number;
}

const { CreateService, GetService, RemoveService, UpdateService } = ControlService.methods;

export abstract class Operator<Options extends OperatorOptions = OperatorOptions> {
  protected readonly options: Options;
  protected readonly random: SimRandom;
  protected readonly client: SimClient;
  /** Ids of its services, as far as it learned of their creation. */
  protected readonly services: string[] = [];
  readonly #isFirstAtOnce: boolean;
  #done = 0;
  #names = 0;

  /** `stream`: its random stream. `isFirstAtOnce`: the first operation runs at once, so that the others have something to change. */
  constructor(options: Options, stream: string, { isFirstAtOnce }: { readonly isFirstAtOnce: boolean }) {
    this.options = options;
    this.random = options.ports.random.fork(stream);
    this.client = new SimClient(options, this.random);
    this.#isFirstAtOnce = isFirstAtOnce;
  }

  get isDone(): boolean {
    return this.#done === this.options.operations;
  }

  start(): void {
    const { operations, ports, withinMs } = this.options;
    for (let operation = 0; operation < operations; operation += 1) {
      const at = operation === 0 && this.#isFirstAtOnce ? 0 : this.random.between(0, withinMs);
      ports.clock.after(at, () => void this.client.attempt(() => this.operate()).then(() => (this.#done += 1)));
    }
  }

  protected abstract operate(): Promise<void>;

  /** Such as `net3`; never the same number twice. */
  protected newName(prefix: string): string {
    return `${prefix}${(this.#names += 1)}`;
  }

  protected mark(name: string): void {
    this.options.trace.mark(name);
  }

  protected call<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    what: string,
  ): Promise<Response> {
    return this.client.call(method, request, what);
  }

  protected async createService(spec: ServiceSpec, what: string, by = this.client): Promise<Service | null> {
    const { service } = await by.call(CreateService, CreateServiceRequest.create({ spec }), what);
    if (service !== null) this.services.push(service.id);
    return service;
  }

  /**
   * Reads the service and updates it to what `change` makes of its spec. False if it has none, or `change` returns null. `how`:
   * further fields of the request.
   */
  protected async changeService(
    serviceId: string,
    change: (spec: ServiceSpec) => ServiceSpec | null,
    what: string | ((spec: ServiceSpec) => string),
    { by = this.client, how = {} }: { readonly by?: SimClient; readonly how?: Partial<UpdateServiceRequest> } = {},
  ): Promise<boolean> {
    const { service } = await by.call(GetService, GetServiceRequest.create({ serviceId }), `get ${serviceId}`);
    const spec = service?.spec == null ? null : change(service.spec);
    if (spec === null) return false;
    const serviceVersion = service?.meta?.version ?? null;
    const request = UpdateServiceRequest.create({ ...how, serviceId, serviceVersion, spec });
    await by.call(UpdateService, request, typeof what === "string" ? what : what(spec));
    return true;
  }

  protected async removeService(serviceId: string, what: string, by = this.client): Promise<void> {
    await by.call(RemoveService, RemoveServiceRequest.create({ serviceId }), what);
    this.services.splice(this.services.indexOf(serviceId), 1);
  }
}
