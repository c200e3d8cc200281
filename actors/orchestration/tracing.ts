/**
 * Passes the trace of a service's change on to the tasks that it causes, in the proposer, through which all decisions of the
 * orchestration go. The orchestration itself knows nothing of traces.
 *
 * X3: a task has the trace of the newest traced change of its service. After a change of leader, changes that the new leader
 *     has not seen are not traced.
 */
import type { Span } from "@opentelemetry/api";
import { Annotations, Operation, Origin, StoreObject, Task } from "../../proto/gen/messages.ts";
import type { Commit, Proposal, ProposeOutcome } from "../../runtime/store/store.ts";
import { traceparentOfTask } from "../../runtime/store/change-traces.ts";
import { spans, type SpanDeclaration } from "../../runtime/telemetry/spans.ts";
import { traceparentLabel, traceparentOf } from "../../runtime/telemetry/tracing.ts";
import type { Environment, Running } from "../environment.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";

/** Maximum spans per proposal; tasks of further traces get no span, but still their context. */
const spansMax = 32;
/** Maximum services whose trace is remembered; the oldest is dropped first. */
const servicesMax = 10_000;

interface TracedOrchestration extends Running {
  /** The orchestration's environment, with a proposer that passes the trace on. */
  readonly environment: Environment;
}

export function traceOrchestration(env: Environment): TracedOrchestration {
  const services = new Map<string, string>();
  const watch = env.store.watch((commit) => {
    if (commit.causes.length > 0) noteServices(services, commit);
  });
  const tracing = new ProposalTracing(env, services);
  return {
    environment: { ...env, proposer: { propose: (proposal) => tracing.propose(proposal) } },
    stop: () => watch.unsubscribe(),
  };
}

function noteServices(services: Map<string, string>, { causes, changes }: Commit): void {
  let at = 0;
  for (const cause of causes) {
    const end = Math.min(changes.length, at + cause.changes);
    for (; at < end; at += 1) {
      const change = changes[at];
      if (change?.table !== "service") continue;
      // Skips what the system itself records in a service: it is not a request.
      if (cause.origin !== Origin.ORIGIN_UNKNOWN && change.action !== "remove" && cause.traceparent === "") continue;
      services.delete(change.object.id);
      if (change.action !== "remove" && cause.traceparent !== "") services.set(change.object.id, cause.traceparent);
    }
  }
  for (const oldest of services.keys()) {
    if (services.size <= servicesMax) break;
    services.delete(oldest);
  }
}

/** The part of one proposal that belongs to one trace. */
interface Part {
  readonly declared: SpanDeclaration<"muster.service.id" | "muster.tasks">;
  readonly span: Span | null;
  /** Context for new tasks. */
  readonly traceparent: string;
  tasks: number;
}

class ProposalTracing {
  readonly #env: Environment;
  readonly #services: ReadonlyMap<string, string>;

  constructor(env: Environment, services: ReadonlyMap<string, string>) {
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
      describeSpan(span, declared, { "muster.tasks": tasks });
      void outcome.then(({ kind }) => endSpan(this.#env, span, kind === "committed" ? null : kind));
    }
    return outcome;
  }

  /** Null when its service's last change was not traced. */
  #create(parts: Map<string, Part>, task: Task): Task | null {
    const cause = this.#services.get(task.serviceId);
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

  #part(parts: Map<string, Part>, declared: Part["declared"], cause: string, serviceId: string): Part {
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
