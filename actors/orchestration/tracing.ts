/**
 * Passes the trace of a service's change on to the tasks that it causes, in the proposer, through which all decisions of the
 * orchestration go. The orchestration itself knows nothing of traces.
 *
 * X3: a task has the trace of the newest change of its service that was requested, if that was traced. A leader knows the
 *     changes that its replica has applied since its process started.
 */
import type { Span } from "@opentelemetry/api";
import {
  Annotations,
  Operation,
  Origin,
  StoreObject,
  Task,
  UpdateStatus_UpdateState,
  type Service,
} from "../../proto/gen/messages.ts";
import type { Commit, Proposal, ProposeOutcome, Store } from "../../runtime/store/store.ts";
import { traceparentOfTask } from "../../runtime/store/change-traces.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import { traceparentLabel, traceparentOf } from "../../runtime/telemetry/tracing.ts";
import type { Environment, Running } from "../environment.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";

/** Maximum spans per proposal; tasks of further traces get no span, but still their context. */
const spansMax = 32;
/** Maximum services whose trace is remembered; the oldest is dropped first. */
const servicesMax = 10_000;

interface ServiceTraces extends Running {
  /** The trace of a service's newest requested change; undefined: it has none, or is unknown. */
  of(serviceId: string): string | undefined;
}

/** Follows the changes of services on every manager: one that becomes the leader continues their traces. X3 */
export function followServiceTraces(store: Store): ServiceTraces {
  const services = new Map<string, string>();
  const watch = store.watch((commit) => {
    if (commit.causes.length > 0) noteServices(services, commit);
  });
  return { of: (serviceId) => services.get(serviceId), stop: () => watch.unsubscribe() };
}

/** The orchestration's environment, with a proposer that passes the trace on. */
export function traceOrchestration(env: Environment, services: Pick<ServiceTraces, "of">): Environment {
  const tracing = new ProposalTracing(env, services);
  return { ...env, proposer: { propose: (proposal) => tracing.propose(proposal) } };
}

function noteServices(services: Map<string, string>, { causes, changes }: Commit): void {
  let at = 0;
  for (const cause of causes) {
    const end = Math.min(changes.length, at + cause.changes);
    for (; at < end; at += 1) {
      const change = changes[at];
      if (change?.table !== "service") continue;
      // Skips what the system itself records in a service, such as the state of its update: it is not a request.
      if (cause.origin !== Origin.ORIGIN_UNKNOWN && change.action !== "remove") continue;
      services.delete(change.object.id);
      if (change.action !== "remove" && cause.traceparent !== "") services.set(change.object.id, cause.traceparent);
    }
  }
  for (const oldest of services.keys()) {
    if (services.size <= servicesMax) break;
    services.delete(oldest);
  }
}

type PartSpan = typeof spans.tasksCreate | typeof spans.rolloutDecide;

/** The part of one proposal that belongs to one trace. */
interface Part {
  readonly declared: PartSpan;
  readonly span: Span | null;
  /** Context for new tasks. */
  readonly traceparent: string;
  tasks: number;
}

class ProposalTracing {
  readonly #env: Environment;
  readonly #services: Pick<ServiceTraces, "of">;

  constructor(env: Environment, services: Pick<ServiceTraces, "of">) {
    this.#env = env;
    this.#services = services;
  }

  propose(proposal: Proposal): Promise<ProposeOutcome> {
    const { proposer } = this.#env;
    const parts = new Map<string, Part>();
    let operations: Operation[] | null = null;
    for (const [at, operation] of proposal.operations.entries()) {
      const task = operation.create?.task ?? null;
      if (task !== null) {
        const labelled = this.#create(parts, task);
        if (labelled === null) continue;
        operations ??= [...proposal.operations];
        operations[at] = Operation.create({ create: StoreObject.create({ task: labelled }) });
      } else if (operation.task !== null && operation.task.nodeId !== "") this.#assign(parts, operation.task.id);
      else if (operation.update?.service != null) this.#decide(parts, operation.update.service);
    }
    const [first] = parts.values();
    if (first === undefined) return proposer.propose(proposal);
    const outcome = proposer.propose({
      ...proposal,
      operations: operations ?? proposal.operations,
      traceparent: first.traceparent,
    });
    for (const { declared, span, tasks } of parts.values()) {
      if (span === null) continue;
      if (declared !== spans.rolloutDecide) describeSpan(span, declared, { "muster.tasks": tasks });
      void outcome.then(({ kind }) => endSpan(this.#env, span, kind === "committed" ? null : kind));
    }
    return outcome;
  }

  /** Null when its service's last change was not traced. */
  #create(parts: Map<string, Part>, task: Task): Task | null {
    const cause = this.#services.of(task.serviceId);
    if (cause === undefined) return null;
    const part = this.#part(parts, spans.tasksCreate, cause, task.serviceId);
    const before = task.annotations ?? Annotations.create({});
    const labels = { ...before.labels, [traceparentLabel]: part.traceparent };
    return Task.patch(task, { annotations: Annotations.patch(before, { labels }) });
  }

  #assign(parts: Map<string, Part>, taskId: string): void {
    const task = this.#env.store.get("task", taskId);
    const cause = task === undefined ? "" : traceparentOfTask(task);
    if (task !== undefined && cause !== "") this.#part(parts, spans.tasksAssign, cause, task.serviceId);
  }

  /** A rollout that begins, pauses, is rolled back or completed; its other writes are notes. */
  #decide(parts: Map<string, Part>, service: Service): void {
    const cause = this.#services.of(service.id);
    const state = service.updateStatus?.state ?? UpdateStatus_UpdateState.UNKNOWN;
    const before = this.#env.store.get("service", service.id)?.updateStatus?.state ?? UpdateStatus_UpdateState.UNKNOWN;
    if (cause === undefined || state === before) return;
    const { span } = this.#part(parts, spans.rolloutDecide, cause, service.id);
    if (span !== null) describeSpan(span, spans.rolloutDecide, { "muster.update.state": state });
  }

  #part(parts: Map<string, Part>, declared: PartSpan, cause: string, serviceId: string): Part {
    const key = `${declared.name} ${cause}`;
    let part = parts.get(key);
    if (part === undefined) {
      const span = parts.size < spansMax ? continueSpan(this.#env, declared, cause) : null;
      if (span !== null) describeSpan(span, declared, { "muster.service.id": serviceId });
      part = { declared, span, traceparent: span === null ? cause : traceparentOf(span), tasks: 0 };
      parts.set(key, part);
    }
    part.tasks += 1;
    return part;
  }
}
