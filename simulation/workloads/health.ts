/**
 * A client with services whose tasks have health checks: creates them, updates them to unhealthy versions, and removes them.
 */
import {
  Any,
  DriverSpec,
  Duration,
  GenericRuntimeSpec,
  HealthCheck,
  HealthHttp,
  HealthTcp,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
} from "../../proto/gen/messages.ts";
import { deadlineLabel, progressDeadlineLabel } from "../../machines/orchestration/rollout/settings.ts";
import type { Look } from "../nodes/driver-machine.ts";
import { driverKind, wellPort } from "../nodes/drivers.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { simService } from "./services.ts";
import { rolloutDeadlineMs } from "./rollout.ts";

const replicasMax = 3;
const labels = { [progressDeadlineLabel]: "40s", [deadlineLabel]: `${rolloutDeadlineMs / 1_000}s` };
const seconds = (count: number) => Duration.create({ seconds: count });

export class HealthWorkload extends Operator {
  constructor(options: OperatorOptions) {
    super(options, "workload.health", { isFirstAtOnce: true });
  }

  protected async operate(): Promise<void> {
    const kind = this.services.length === 0 ? 0 : this.random.next();
    if (kind < 0.4) await this.#create();
    else if (kind < 0.8) await this.#update(this.random.pick(this.services));
    else {
      const id = this.random.pick(this.services);
      await this.removeService(id, `remove ${id}`);
    }
  }

  async #create(): Promise<void> {
    const name = this.newName("h");
    const update = UpdateConfig.create({
      parallelism: 1 + this.random.below(2),
      monitor: seconds(1 + this.random.below(3)),
      failureAction: UpdateConfig_FailureAction.ROLLBACK,
    });
    const spec = simService({
      name,
      labels,
      task: this.#task("well"),
      replicas: 1 + this.random.below(replicasMax),
      update,
      rollback: UpdateConfig.create({ parallelism: 0, monitor: seconds(1) }),
    });
    const service = await this.createService(spec, `create ${name} with a health check`);
    if (service !== null) this.mark("checked.created");
  }

  /** The start period is longer than any task needs to become healthy. */
  #task(look: Look): TaskSpec {
    const looks: readonly Partial<HealthCheck>[] = [
      { command: [look] },
      { http: HealthHttp.create({ port: 8080, path: `/${look}` }) },
      { tcp: HealthTcp.create({ port: look === "well" ? wellPort : wellPort + 1 }) },
    ];
    const health = HealthCheck.create({
      ...this.random.pick(looks),
      interval: seconds(1 + this.random.below(3)),
      timeout: seconds(1 + this.random.below(2)),
      retries: 1 + this.random.below(3),
      startPeriod: look === "well" ? seconds(15) : seconds(1),
      startInterval: seconds(1),
    });
    const value = DriverSpec.encode(DriverSpec.create({ config: "{}", health }));
    const payload = Any.create({ type_url: "sim/muster.v1.DriverSpec", value });
    return TaskSpec.create({
      generic: GenericRuntimeSpec.create({ kind: driverKind, payload }),
      restart: RestartPolicy.create({
        condition: RestartPolicy_RestartCondition.ANY,
        delay: seconds(1),
        // A cluster in which something fails for ever never comes to rest.
        maxAttempts: 4 + this.random.below(5),
      }),
    });
  }

  async #update(serviceId: string): Promise<void> {
    let look: Look = "well";
    const isUpdated = await this.changeService(
      serviceId,
      (spec) => {
        look = this.random.pick<Look>(["well", "never"]);
        return ServiceSpec.patch(spec, { task: this.#task(look) });
      },
      () => `update ${serviceId} to be ${look}`,
    );
    if (isUpdated) this.mark(`checked.updated.${look}`);
  }
}
