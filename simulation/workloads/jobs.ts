/**
 * A client with jobs: creates them, some with a schedule, and updates, pauses, stops, resumes and removes them. At the end it
 * removes every schedule, because otherwise the cluster would never rest.
 */
import { jobLabel, scheduleSettings } from "../../machines/orchestration/jobs/labels.ts";
import {
  Annotations,
  ControlService,
  Duration,
  GlobalJob,
  ListServicesRequest,
  RemoveServiceRequest,
  ReplicatedJob,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
} from "../../proto/gen/messages.ts";
import { RpcError } from "../../runtime/ports/rpc.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { jobPayload } from "../nodes/machine.ts";
import { simService, simTask } from "./services.ts";

const totalMax = 6;
/** Seconds between two due times; each divides a minute. */
const periods = [1, 2, 3, 5] as const;
/** The restart conditions; most jobs use one that retries. */
const { ANY, NONE, ON_FAILURE } = RestartPolicy_RestartCondition;
const conditions = [ON_FAILURE, ON_FAILURE, ANY, NONE] as const;
/** Interval between checks for schedules that appeared late. */
const lookAgainMs = 20_000;
const retryMs = 1_000;

export class JobWorkload extends Operator {
  #isCleared = false;

  constructor(options: OperatorOptions) {
    super(options, "workload.jobs", { isFirstAtOnce: true });
  }

  override get isDone(): boolean {
    return super.isDone && (this.#isCleared || this.options.operations === 0);
  }

  override start(): void {
    const { operations, ports, withinMs } = this.options;
    super.start();
    if (operations > 0) ports.clock.after(withinMs, () => void this.#clear());
  }

  /** Continues until every schedule is removed, including those whose creation this client did not learn of. */
  async #clear(): Promise<void> {
    const { clock } = this.options.ports;
    const later = (): void => void clock.after(retryMs, () => void this.#clear());
    if (!super.isDone) return later();
    try {
      const request = ListServicesRequest.create();
      const { services } = await this.call(ControlService.methods.ListServices, request, "list services");
      const schedules = services.filter((service) => scheduleSettings(service.spec) !== null);
      for (const { id } of schedules) {
        const removal = RemoveServiceRequest.create({ serviceId: id });
        await this.call(ControlService.methods.RemoveService, removal, `remove schedule ${id}`);
      }
      this.#isCleared = schedules.length === 0;
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
    }
    // An unacknowledged creation may still take effect from a manager that was suspended (seed 16).
    clock.after(this.#isCleared ? lookAgainMs : retryMs, () => void this.#clear());
  }

  protected async operate(): Promise<void> {
    const kind = this.services.length === 0 ? 0 : this.random.next();
    if (kind < 0.35) await this.#create();
    else if (kind < 0.5) await this.#change(this.random.pick(this.services), (spec) => this.#updated(spec), "update");
    else if (kind < 0.9) await this.#change(this.random.pick(this.services), (spec) => this.#steered(spec), "steer");
    else await this.#remove(this.random.pick(this.services));
  }

  async #create(): Promise<void> {
    const name = this.newName("j");
    const isScheduled = this.random.chance(0.5);
    const isGlobal = this.random.chance(0.3);
    const labels: Record<string, string> = {};
    if (isScheduled) {
      labels[jobLabel.cron] = `*/${this.random.pick(periods)} * * * * *`;
      labels[jobLabel.overlap] = this.random.pick(["forbid", "allow", "replace"]);
      if (this.random.chance(0.3)) labels[jobLabel.missedRunWindow] = "3s";
      if (this.random.chance(0.3)) labels[jobLabel.history] = "0";
    } else if (this.random.chance(0.3)) labels[jobLabel.ttl] = `${this.random.between(1, 10).toFixed(1)}s`;
    const spec = simService({
      name,
      labels,
      task: {
        generic: simTask(jobPayload),
        restart: RestartPolicy.create({
          condition: this.random.pick(conditions),
          delay: Duration.create({ nanos: 2e8 }),
          maxAttempts: this.random.below(4),
        }),
      },
      ...(isGlobal ? { globalJob: GlobalJob.create({}) } : { replicatedJob: this.#size() }),
    });
    const what = `create job ${name} ${isGlobal ? "global" : `${spec.replicatedJob?.maxConcurrent}/${spec.replicatedJob?.totalCompletions}`} ${JSON.stringify(labels)}`;
    if ((await this.createService(spec, what)) !== null) this.mark(isScheduled ? "job.scheduled" : "job.created");
  }

  #size(): ReplicatedJob {
    const totalCompletions = this.random.below(totalMax + 1);
    return ReplicatedJob.create({ totalCompletions, maxConcurrent: 1 + this.random.below(3) });
  }

  async #change(serviceId: string, change: (spec: ServiceSpec) => ServiceSpec, what: string): Promise<void> {
    const isChanged = await this.changeService(
      serviceId,
      change,
      ({ annotations }) => `${what} job ${serviceId} ${annotations?.labels[jobLabel.state] ?? ""}`,
    );
    if (isChanged) this.mark(`job.${what}`);
  }

  #updated(spec: ServiceSpec): ServiceSpec {
    return spec.replicatedJob === null ? spec : ServiceSpec.patch(spec, { replicatedJob: this.#size() });
  }

  #steered(spec: ServiceSpec): ServiceSpec {
    const annotations = spec.annotations ?? Annotations.create();
    const state = this.random.pick(["running", "running", "paused", "stopped"]);
    const labels: Record<string, string> = { ...annotations.labels, [jobLabel.state]: state };
    if (labels[jobLabel.cron] !== undefined && this.random.chance(0.3)) {
      labels[jobLabel.cron] = `*/${this.random.pick(periods)} * * * * *`;
    }
    return ServiceSpec.patch(spec, { annotations: Annotations.patch(annotations, { labels }) });
  }

  async #remove(serviceId: string): Promise<void> {
    this.services.splice(this.services.indexOf(serviceId), 1);
    const request = RemoveServiceRequest.create({ serviceId });
    await this.call(ControlService.methods.RemoveService, request, `remove job ${serviceId}`);
  }
}
