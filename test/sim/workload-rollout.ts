/**
 * An operator who updates services, successfully or not, with every order and failure action, and pauses, resumes, steps and
 * aborts the rollouts.
 */
import {
  Annotations,
  Any,
  ControlRolloutRequest,
  ControlRolloutRequest_Action,
  ControlService,
  CreateServiceRequest,
  Duration,
  GenericRuntimeSpec,
  GetServiceRequest,
  OperatorService,
  ReplicatedService,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  type Service,
} from "../../proto/gen/messages.ts";
import { deadlineLabel, progressDeadlineLabel } from "../../machines/orchestration/rollout/settings.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { Operations, type OperationsOptions } from "./operations.ts";
import { taskKind } from "./workload.ts";

/** Prefixes of a task's payload: its start is refused, or takes longer than the progress deadline. */
export const refusedPayload = 7;
export const stuckPayload = 8;
/** Duration of the start of such a task before it is refused, in milliseconds. */
export const stuckMs = 20_000;
const goodPayload = 1;

/** Maximum duration of a rollout, in milliseconds. */
export const rolloutDeadlineMs = 120_000;
const labels = { [progressDeadlineLabel]: "10s", [deadlineLabel]: `${rolloutDeadlineMs / 1_000}s` };

const { LOOK, PAUSE, RESUME, STEP, ABORT } = ControlRolloutRequest_Action;
const actionNames = new Map<number, string>(
  Object.entries(ControlRolloutRequest_Action).map(([name, number]) => [number, name.toLowerCase()]),
);

export interface RolloutWorkloadOptions extends ClientOptions, OperationsOptions {}

export class RolloutWorkload {
  readonly #options: RolloutWorkloadOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  readonly #operations: Operations;
  readonly #services: string[] = [];
  #names = 0;

  constructor(options: RolloutWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.rollout");
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
    if (kind < 0.15) await this.#create();
    else if (kind < 0.5) await this.#update(this.#random.pick(this.#services));
    else if (kind < 0.6) await this.#rollBack(this.#random.pick(this.#services));
    else await this.#act(this.#random.pick(this.#services));
  }

  async #create(): Promise<void> {
    const name = `r${(this.#names += 1)}`;
    const { CONTINUE, PAUSE: WAIT, ROLLBACK } = UpdateConfig_FailureAction;
    const { START_FIRST, STOP_FIRST } = UpdateConfig_UpdateOrder;
    const order = this.#random.pick([START_FIRST, STOP_FIRST]);
    const config = () =>
      UpdateConfig.create({
        parallelism: this.#random.below(4),
        delay: Duration.create({ seconds: this.#random.below(3) }),
        monitor: Duration.create({ seconds: this.#random.below(4) }),
        failureAction: this.#random.pick([WAIT, ROLLBACK, ROLLBACK, CONTINUE]),
        maxFailureRatio: this.#random.chance(0.3) ? 0.5 : 0,
        order,
      });
    const spec = ServiceSpec.create({
      annotations: Annotations.create({ name, labels }),
      task: TaskSpec.create({
        generic: GenericRuntimeSpec.create({ kind: taskKind, payload: payload(goodPayload) }),
        restart: RestartPolicy.create({
          condition: RestartPolicy_RestartCondition.ANY,
          delay: Duration.create({ seconds: 1 + this.#random.below(4) }),
          // A cluster in which something fails for ever never comes to rest.
          maxAttempts: 2 + this.#random.below(5),
        }),
      }),
      replicated: ReplicatedService.create({ replicas: 1 + this.#random.below(6) }),
      update: config(),
      rollback: config(),
    });
    const request = CreateServiceRequest.create({ spec });
    const { service } = await this.#client.call(ControlService.methods.CreateService, request, `create ${name}`);
    if (service !== null) this.#services.push(service.id);
  }

  async #get(serviceId: string): Promise<Service | null> {
    const request = GetServiceRequest.create({ serviceId });
    const { service } = await this.#client.call(ControlService.methods.GetService, request, `get ${serviceId}`);
    return service;
  }

  async #update(serviceId: string): Promise<void> {
    const service = await this.#get(serviceId);
    const task = service?.spec?.task ?? null;
    if (service?.spec == null || task === null) return;
    const kind = this.#random.pick([goodPayload, goodPayload, goodPayload, refusedPayload, stuckPayload]);
    const generic = GenericRuntimeSpec.create({ kind: taskKind, payload: payload(kind) });
    const changed = TaskSpec.patch(task, { forceUpdate: task.forceUpdate + 1, generic });
    const replicas = this.#random.chance(0.2) ? 1 + this.#random.below(6) : (service.spec.replicated?.replicas ?? 1);
    const spec = ServiceSpec.patch(service.spec, {
      task: changed,
      replicated: ReplicatedService.create({ replicas }),
    });
    const request = UpdateServiceRequest.create({ serviceId, serviceVersion: service.meta?.version ?? null, spec });
    const what = `update ${serviceId} to ${changed.forceUpdate} of kind ${kind}, ${replicas} replicas`;
    await this.#client.call(ControlService.methods.UpdateService, request, what);
    this.#options.trace.mark(kind === goodPayload ? "rollout.good" : "rollout.bad");
  }

  async #rollBack(serviceId: string): Promise<void> {
    const service = await this.#get(serviceId);
    if (service?.spec == null) return;
    const request = UpdateServiceRequest.create({
      serviceId,
      serviceVersion: service.meta?.version ?? null,
      spec: service.spec,
      rollback: UpdateServiceRequest_Rollback.PREVIOUS,
    });
    await this.#client.call(ControlService.methods.UpdateService, request, `roll back ${serviceId}`);
    this.#options.trace.mark("rollout.back.by.hand");
  }

  async #act(serviceId: string): Promise<void> {
    const action = this.#random.pick([LOOK, PAUSE, RESUME, RESUME, STEP, STEP, ABORT]);
    const name = actionNames.get(action) ?? "";
    const request = ControlRolloutRequest.create({ service: serviceId, action });
    await this.#client.call(OperatorService.methods.ControlRollout, request, `${name} ${serviceId}`);
    this.#options.trace.mark(`rollout.${name}`);
  }
}

function payload(kind: number): Any {
  return Any.create({ type_url: "sim", value: new Uint8Array([kind]) });
}
