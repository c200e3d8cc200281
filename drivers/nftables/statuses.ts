/**
 * What main is told of endpoints: `up`, `down` or `error`, each time one's status changes, and that one is forgotten.
 * Always with its id: a status without one ends a stock Felix.
 */
import type { FromDataplane, HostEndpointID, WorkloadEndpointID } from "../../proto/gen/felix.ts";
import {
  EndpointStatus,
  HostEndpointStatusRemove,
  HostEndpointStatusUpdate,
  WorkloadEndpointStatusRemove,
  WorkloadEndpointStatusUpdate,
} from "../../proto/gen/felix.ts";

export type Status = "up" | "down" | "error";

export type Endpoint =
  | { readonly kind: "workload"; readonly key: string; readonly id: WorkloadEndpointID }
  | { readonly kind: "host"; readonly key: string; readonly id: HostEndpointID };

export class Statuses {
  readonly #send: (fields: Partial<FromDataplane>) => void;
  readonly #told = new Map<string, { readonly endpoint: Endpoint; readonly status: Status }>();

  constructor(send: (fields: Partial<FromDataplane>) => void) {
    this.#send = send;
  }

  /** Null: main has removed it. */
  tell(endpoint: Endpoint, status: Status | null): void {
    const key = `${endpoint.kind} ${endpoint.key}`;
    const told = this.#told.get(key);
    if ((told?.status ?? null) === status) return;
    if (status === null) {
      this.#told.delete(key);
      if (endpoint.kind === "workload")
        this.#send({ workloadEndpointStatusRemove: WorkloadEndpointStatusRemove.create({ id: endpoint.id }) });
      else this.#send({ hostEndpointStatusRemove: HostEndpointStatusRemove.create({ id: endpoint.id }) });
      return;
    }
    this.#told.set(key, { endpoint, status });
    const said = EndpointStatus.create({ status });
    if (endpoint.kind === "workload")
      this.#send({
        workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({ id: endpoint.id, status: said }),
      });
    else this.#send({ hostEndpointStatusUpdate: HostEndpointStatusUpdate.create({ id: endpoint.id, status: said }) });
  }
}
