/**
 * Changes of services, for all facades. Every change is a request to Control on behalf of the caller, so it is checked,
 * ordered and recorded like those of `muster service`.
 */
import {
  CreateServiceRequest,
  RemoveServiceRequest,
  RemoveTaskRequest,
  TaskState,
  UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  type ServiceSpec,
} from "../../../proto/gen/messages.ts";
import type { TimerHandle } from "../../../runtime/ports/index.ts";
import { RpcError, Status } from "../../../runtime/ports/rpc.ts";
import { topics } from "../feed/feed.ts";
import { networkOf } from "../feed/networks.ts";
import { applicationName } from "../entities/names.ts";
import type { UnitView } from "../entities/views.ts";
import type { Call, FacadeSources } from "../facade.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import { withConstraints } from "./constraints.ts";
import { withModelConstraints } from "./model-constraints.ts";
import { newService, scaleOf, withConfig, withScale } from "./service-spec.ts";
import { notFound, notSupported, type Subjects } from "./subjects.ts";

/** Attempts per change: after a concurrent change of the service, the change is applied again to the new spec. */
const attemptsMax = 5;
/**
 * How long to wait for a unit that its application has yet to create, in milliseconds; creating one takes well below a second.
 */
const unitToComeMs = 5_000;
/** Maximum scale; larger numbers are typing errors. */
const unitsMax = 100_000;

interface Deployment {
  readonly name: string;
  readonly charmUrl: string;
  readonly units: number | null;
  readonly config: ReadonlyMap<string, unknown>;
  readonly constraints: Params;
  /** Machine numbers. */
  readonly machines: readonly string[];
  /** Network names. */
  readonly networks: readonly string[];
}

export class ServiceWrites {
  readonly #sources: FacadeSources;
  readonly #subjects: Subjects;

  constructor(sources: FacadeSources, subjects: Subjects) {
    this.#sources = sources;
    this.#subjects = subjects;
  }

  async deploy(call: Call, wanted: Deployment): Promise<void> {
    await this.#sources.control.CreateService(CreateServiceRequest.create({ spec: this.specOf(wanted) }), call.rpc);
  }

  /** The spec for a deployment. Throws RequestError. */
  specOf(wanted: Deployment): ServiceSpec {
    const { name, charmUrl, units, config, constraints, machines } = wanted;
    if (name === "" || applicationName(name) !== name) {
      throw new RequestError(`${JSON.stringify(name)} is not a valid application name`, "not valid");
    }
    if (machines.length > 1) throw notSupported("units cannot be placed individually: name at most one machine");
    const [machine] = machines;
    const networks = wanted.networks.map((network) => {
      const found = networkOf(this.#sources.store, network);
      if (found === undefined) throw notFound("network", JSON.stringify(network));
      return found.id;
    });
    const spec = newService({
      name,
      charmUrl,
      units: counted(units ?? 1),
      nodeId: machine === undefined ? null : this.#subjects.machine(machine).nodeId,
      networks,
    });
    return withConstraints(withConfig(spec, config), withModelConstraints(this.#sources.store, constraints));
  }

  /** Applies `change` to the current spec. */
  async update(call: Call, application: string, change: (spec: ServiceSpec) => ServiceSpec): Promise<void> {
    await this.#update(call, application, change, UpdateServiceRequest_Rollback.NONE);
  }

  /** Rolls back to the previous spec. */
  async rollBack(call: Call, application: string): Promise<void> {
    await this.#update(call, application, (spec) => spec, UpdateServiceRequest_Rollback.PREVIOUS);
  }

  async #update(
    call: Call,
    application: string,
    change: (spec: ServiceSpec) => ServiceSpec,
    rollback: UpdateServiceRequest_Rollback,
  ): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      const service = this.#subjects.service(application);
      if (service.spec === null) throw notFound("application", application);
      const spec = change(service.spec);
      if (spec === service.spec && rollback === UpdateServiceRequest_Rollback.NONE) return;
      const serviceVersion = service.meta?.version ?? null;
      try {
        await this.#sources.control.UpdateService(
          UpdateServiceRequest.create({ serviceId: service.id, serviceVersion, spec, rollback }),
          call.rpc,
        );
        return;
      } catch (error) {
        if (!(error instanceof RpcError && error.code === Status.ABORTED) || attempt >= attemptsMax) throw error;
      }
    }
  }

  async remove(call: Call, application: string): Promise<void> {
    const { id } = this.#subjects.service(application);
    await this.#sources.control.RemoveService(RemoveServiceRequest.create({ serviceId: id }), call.rpc);
  }

  /** Returns the names of the new units. */
  async addUnits(call: Call, application: string, count: number): Promise<readonly string[]> {
    if (count < 1) throw new RequestError("must add at least one unit", "not valid");
    const { id } = this.#subjects.application(application);
    let names: readonly string[] = [];
    await this.update(call, application, (spec) => {
      // Before the update: afterwards some of the new units may exist already.
      names = this.#namesOfNew(id, count);
      return withScale(spec, counted((scaleOf(spec) ?? 0) + count));
    });
    return names;
  }

  /** The lowest unused unit numbers, which new tasks will have. */
  #namesOfNew(application: string, count: number): readonly string[] {
    const taken = new Set<string>();
    for (const { id, life } of this.#sources.feed.unitsOf(application)) if (life === "alive") taken.add(id);
    const names: string[] = [];
    for (let number = 0; names.length < count; number += 1) {
      const name = `${application}/${number}`;
      if (!taken.has(name)) names.push(name);
    }
    return names;
  }

  async scale(
    call: Call,
    application: string,
    wanted: { scale: number | null; change: number | null },
  ): Promise<number> {
    let scaled = 0;
    await this.update(call, application, (spec) => {
      scaled = counted(
        wanted.scale !== null && wanted.change === null ? wanted.scale : (scaleOf(spec) ?? 0) + (wanted.change ?? 0),
      );
      return withScale(spec, scaled);
    });
    return scaled;
  }

  /**
   * Removes these units: first their tasks, then the surplus slots, of which the orchestrator removes those without a settled
   * task first.
   */
  async removeUnits(call: Call, names: readonly string[]): Promise<void> {
    const units = await Promise.all([...new Set(names)].map((name) => this.#awaitUnit(call, name)));
    for (const [application, gone] of Map.groupBy(units, (unit) => unit.application)) {
      const spec = this.#subjects.service(application).spec;
      if (spec === null || scaleOf(spec) === null) {
        throw notSupported(
          "units of a global application cannot be removed: drain the machine, or constrain the application",
        );
      }
      for (const unit of gone) await this.#removeTasks(call, unit);
      await this.update(call, application, (now) => withScale(now, Math.max(0, (scaleOf(now) ?? 0) - gone.length)));
    }
  }

  /**
   * Finds a unit that may not exist yet: AddUnits replies when the service commits, and a client may name a unit before the
   * orchestrator has created its task. Waits while the application has fewer units than it wants.
   */
  #awaitUnit(call: Call, name: string): Promise<UnitView> {
    const { feed, clock } = this.#sources;
    const application = name.slice(0, name.lastIndexOf("/"));
    const isOwed = (): boolean => {
      const found = feed.find("application", application);
      if (found === undefined) return false;
      return [...feed.unitsOf(found.id)].filter(({ life }) => life === "alive").length < found.scale;
    };
    if (feed.find("unit", name) !== undefined || !isOwed()) return Promise.resolve(this.#subjects.unit(name));
    return new Promise((resolve, reject) => {
      const decide = (): void => {
        timer = null;
        waiting.unsubscribe();
        call.session.signal.removeEventListener("abort", decide);
        try {
          resolve(this.#subjects.unit(name));
        } catch (error) {
          reject(error);
        }
      };
      const waiting = feed.wait(topics.unitsOf(application), () => {
        if (feed.find("unit", name) === undefined && isOwed()) return;
        if (timer !== null) clock.clearTimeout(timer);
        decide();
      });
      let timer: TimerHandle | null = clock.setTimeout(decide, unitToComeMs);
      call.session.signal.addEventListener("abort", decide, { once: true });
    });
  }

  /** Removes a failed unit's tasks, so that the orchestrator creates a new one. */
  async resolve(call: Call, name: string): Promise<void> {
    const unit = this.#subjects.unit(name);
    if (unit.words.workload.current !== "error") {
      throw new RequestError(`unit ${JSON.stringify(name)} is not in an error state`, "not valid");
    }
    await this.#removeTasks(call, unit, (state) => state > TaskState.RUNNING);
  }

  async #removeTasks(call: Call, unit: UnitView, isMeant: (state: TaskState) => boolean = () => true): Promise<void> {
    const { control, store } = this.#sources;
    const judged = this.#subjects.task(unit.id);
    for (const task of Array.from(store.tasksAt(unit.serviceId, judged.slot, judged.nodeId))) {
      if (!isMeant(task.status?.state ?? TaskState.NEW)) continue;
      try {
        await control.RemoveTask(RemoveTaskRequest.create({ taskId: task.id }), call.rpc);
      } catch (error) {
        // The reaper has already removed it.
        if (!(error instanceof RpcError && error.code === Status.NOT_FOUND)) throw error;
      }
    }
  }
}

function counted(count: number): number {
  if (!Number.isSafeInteger(count) || count < 0 || count > unitsMax) {
    throw new RequestError(`invalid number of units ${count}: expected 0 to ${unitsMax}`, "not valid");
  }
  return count;
}
