/**
 * An operator who updates services, successfully or not, with every order and failure action, and pauses, resumes, steps and
 * aborts the rollouts.
 */
import {
  ControlRolloutRequest,
  ControlRolloutRequest_Action,
  Duration,
  OperatorService,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  UpdateServiceRequest_Rollback,
} from "../../proto/gen/messages.ts";
import { deadlineLabel, progressDeadlineLabel } from "../../machines/orchestration/rollout/settings.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { scaledTo, simService, simTask } from "./services.ts";

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

export class RolloutWorkload extends Operator {
  constructor(options: OperatorOptions) {
    super(options, "workload.rollout", { isFirstAtOnce: true });
  }

  protected async operate(): Promise<void> {
    const kind = this.services.length === 0 ? 0 : this.random.next();
    if (kind < 0.15) await this.#create();
    else if (kind < 0.5) await this.#update(this.random.pick(this.services));
    else if (kind < 0.6) await this.#rollBack(this.random.pick(this.services));
    else await this.#act(this.random.pick(this.services));
  }

  async #create(): Promise<void> {
    const name = this.newName("r");
    const { CONTINUE, PAUSE: WAIT, ROLLBACK } = UpdateConfig_FailureAction;
    const { START_FIRST, STOP_FIRST } = UpdateConfig_UpdateOrder;
    const order = this.random.pick([START_FIRST, STOP_FIRST]);
    const config = () =>
      UpdateConfig.create({
        parallelism: this.random.below(4),
        delay: Duration.create({ seconds: this.random.below(3) }),
        monitor: Duration.create({ seconds: this.random.below(4) }),
        failureAction: this.random.pick([WAIT, ROLLBACK, ROLLBACK, CONTINUE]),
        maxFailureRatio: this.random.chance(0.3) ? 0.5 : 0,
        order,
      });
    const spec = simService({
      name,
      labels,
      task: {
        restart: RestartPolicy.create({
          condition: RestartPolicy_RestartCondition.ANY,
          delay: Duration.create({ seconds: 1 + this.random.below(4) }),
          // A cluster in which something fails for ever never comes to rest.
          maxAttempts: 2 + this.random.below(5),
        }),
      },
      replicas: 1 + this.random.below(6),
      update: config(),
      rollback: config(),
    });
    await this.createService(spec, `create ${name}`);
  }

  async #update(serviceId: string): Promise<void> {
    let kind = goodPayload;
    const isUpdated = await this.changeService(
      serviceId,
      (before) => {
        if (before.task === null) return null;
        kind = this.random.pick([goodPayload, goodPayload, goodPayload, refusedPayload, stuckPayload]);
        const task = { forceUpdate: before.task.forceUpdate + 1, generic: simTask(kind) };
        const replicas = this.random.chance(0.2) ? 1 + this.random.below(6) : (before.replicated?.replicas ?? 1);
        return ServiceSpec.patch(scaledTo(before, replicas), { task: TaskSpec.patch(before.task, task) });
      },
      ({ replicated, task }) =>
        `update ${serviceId} to ${task?.forceUpdate} of kind ${kind}, ${replicated?.replicas} replicas`,
    );
    if (isUpdated) this.mark(kind === goodPayload ? "rollout.good" : "rollout.bad");
  }

  async #rollBack(serviceId: string): Promise<void> {
    const how = { rollback: UpdateServiceRequest_Rollback.PREVIOUS };
    if (await this.changeService(serviceId, (spec) => spec, `roll back ${serviceId}`, { how }))
      this.mark("rollout.back.by.hand");
  }

  async #act(serviceId: string): Promise<void> {
    const action = this.random.pick([LOOK, PAUSE, RESUME, RESUME, STEP, STEP, ABORT]);
    const name = actionNames.get(action) ?? "";
    const request = ControlRolloutRequest.create({ service: serviceId, action });
    await this.call(OperatorService.methods.ControlRollout, request, `${name} ${serviceId}`);
    this.mark(`rollout.${name}`);
  }
}
