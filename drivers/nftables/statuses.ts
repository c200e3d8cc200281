/**
 * Endpoint statuses sent to main: `up`, `down` or `error` whenever a status or a workload's description changes, and the
 * removal of an endpoint. They always contain the id: a status without one ends a stock Felix. A workload's status also contains the
 * endpoint as main described it: Felix 3.30 and newer logs an error without it, and publishes its information about the
 * workload's BGP peer. Fields unknown here are returned unchanged.
 */
import type { FromDataplane, HostEndpointID, WorkloadEndpointID } from "../../proto/gen/felix.ts";
import {
  EndpointStatus,
  WorkloadEndpoint,
  HostEndpointStatusRemove,
  HostEndpointStatusUpdate,
  WorkloadEndpointStatusRemove,
  WorkloadEndpointStatusUpdate,
} from "../../proto/gen/felix.ts";

export type Status = "up" | "down" | "error";

type Endpoint =
  | {
      readonly kind: "workload";
      readonly key: string;
      readonly id: WorkloadEndpointID;
      readonly endpoint: WorkloadEndpoint;
    }
  | { readonly kind: "host"; readonly key: string; readonly id: HostEndpointID };

export class Statuses {
  readonly #send: (fields: Partial<FromDataplane>) => void;
  readonly #reported = new Map<string, { readonly endpoint: Endpoint; readonly status: Status }>();

  constructor(send: (fields: Partial<FromDataplane>) => void) {
    this.#send = send;
  }

  /** Null: main has removed it. */
  tell(endpoint: Endpoint, status: Status | null): void {
    const key = `${endpoint.kind} ${endpoint.key}`;
    const reported = this.#reported.get(key);
    if ((reported?.status ?? null) === status && (status === null || isSame(reported?.endpoint, endpoint))) return;
    if (status === null) {
      this.#reported.delete(key);
      if (endpoint.kind === "workload")
        this.#send({ workloadEndpointStatusRemove: WorkloadEndpointStatusRemove.create({ id: endpoint.id }) });
      else this.#send({ hostEndpointStatusRemove: HostEndpointStatusRemove.create({ id: endpoint.id }) });
      return;
    }
    this.#reported.set(key, { endpoint, status });
    const said = EndpointStatus.create({ status });
    if (endpoint.kind === "workload")
      this.#send({
        workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({
          id: endpoint.id,
          status: said,
          endpoint: endpoint.endpoint,
        }),
      });
    else this.#send({ hostEndpointStatusUpdate: HostEndpointStatusUpdate.create({ id: endpoint.id, status: said }) });
  }
}

/** Ignores policies and profiles: main knows them, and they change for all endpoints at once. */
function isSame(before: Endpoint | undefined, now: Endpoint): boolean {
  if (before?.kind !== "workload" || now.kind !== "workload" || before.endpoint === now.endpoint) return true;
  const description = ({ endpoint }: typeof now): Uint8Array =>
    WorkloadEndpoint.encode(WorkloadEndpoint.patch(endpoint, { tiers: [], profileIds: [] }));
  return Buffer.compare(description(before), description(now)) === 0;
}
