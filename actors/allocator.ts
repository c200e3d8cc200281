/** Hosts the allocator: keeps the port space in step with the store, and writes endpoints and what tasks may go on. */
import {
  allocatorMachine,
  decideEndpoint,
  decideTask,
  PortSpace,
  type EndpointDecision,
} from "../machines/allocator.ts";
import { observedState } from "../machines/task.ts";
import { Operation, Service, StoreObject, TaskState, type Network, type Task } from "../proto/gen/messages.ts";
import type { Environment } from "./environment.ts";
import { advance, complain, now, roundTasksMax, status, type Part, type Writer } from "./orchestration-part.ts";

export function startAllocator(env: Environment, writer: Writer): Part {
  const { store } = env;
  const ports = new PortSpace();
  const services = new Set<string>();
  const tasks = new Set<string>();
  const blockedServices = new Set<string>();
  /** By task: what its status was last told about why it waits. */
  const blockedTasks = new Map<string, string>();
  const writing = new Set<string>();
  let hasWork = false;
  let hasRoom = false;

  function arrive(task: Task): void {
    if (observedState(task) !== TaskState.NEW || task.desiredState >= TaskState.REMOVE || writing.has(task.id)) return;
    tasks.add(task.id);
    hasWork = true;
  }

  function arriveService(service: Service): void {
    if (writing.has(service.id)) return;
    // Only what needs something written is queued, so that most services cost nothing here.
    if (decideEndpoint(service, ports).kind === "allocated") return;
    services.add(service.id);
    hasWork = true;
  }

  function networkOf(idOrName: string): Network | undefined {
    return store.get("network", idOrName) ?? store.byName("network", idOrName);
  }

  function allocate(): { readonly blocked: number; readonly isPartial: boolean } {
    const operations: Operation[] = [];
    const decided = new Map<string, EndpointDecision>();
    const endpointOf = (service: Service): EndpointDecision => {
      let decision = decided.get(service.id);
      if (decision === undefined) decided.set(service.id, (decision = decideEndpoint(service, ports)));
      return decision;
    };
    for (const id of services) {
      const service = store.get("service", id);
      if (service === undefined || writing.has(id)) continue;
      const decision = endpointOf(service);
      if (decision.kind === "blocked") blockedServices.add(id);
      if (decision.kind !== "endpoint") continue;
      ports.claim(id, decision.endpoint.ports);
      writing.add(id);
      operations.push(
        Operation.create({
          update: StoreObject.create({ service: Service.patch(service, { endpoint: decision.endpoint }) }),
        }),
      );
    }
    services.clear();
    const time = now(env);
    const pending = status(TaskState.PENDING, "pending task scheduling", time);
    let left = roundTasksMax;
    for (const id of tasks) {
      if (left === 0) break;
      left -= 1;
      tasks.delete(id);
      const task = store.get("task", id);
      const told = blockedTasks.get(id) ?? task?.status?.err ?? "";
      blockedTasks.delete(id);
      if (task === undefined || observedState(task) !== TaskState.NEW || writing.has(id)) continue;
      const service = task.serviceId === "" ? undefined : store.get("service", task.serviceId);
      const endpoint: EndpointDecision = service === undefined ? { kind: "allocated" } : endpointOf(service);
      const decision = decideTask(task, service, networkOf, endpoint);
      switch (decision.kind) {
        case "ready":
          writing.add(id);
          operations.push(
            advance(task, "allocator", pending, decision.endpoint === null ? {} : { endpoint: decision.endpoint }),
          );
          break;
        case "unwanted":
          // The scheduler ends it.
          break;
        case "later":
          blockedTasks.set(id, told);
          break;
        case "blocked":
          blockedTasks.set(id, decision.reason);
          if (decision.reason !== told)
            operations.push(complain(task, "waiting for the allocator", decision.reason, time));
      }
    }
    if (operations.length > 0) writer.write(operations, () => written(operations));
    return { blocked: blockedServices.size + blockedTasks.size, isPartial: tasks.size > 0 };
  }

  function written(operations: readonly Operation[]): void {
    for (const { task, update } of operations) {
      if (task !== null && writing.delete(task.id)) {
        const stored = store.get("task", task.id);
        if (stored !== undefined) arrive(stored);
      } else if (update?.service != null) {
        const { id } = update.service;
        writing.delete(id);
        const stored = store.get("service", id);
        if (stored === undefined) ports.release(id);
        else {
          // What is stored counts, whoever wrote it.
          ports.claim(id, stored.endpoint?.ports ?? []);
          arriveService(stored);
        }
        hasRoom = true;
      }
    }
    tell();
  }

  function retry(): void {
    for (const id of blockedServices) services.add(id);
    for (const id of blockedTasks.keys()) tasks.add(id);
    blockedServices.clear();
  }

  function tell(): void {
    if (hasWork) hostedActor.actor.send({ type: "work.arrived" });
    if (hasRoom) hostedActor.actor.send({ type: "room.made" });
    hasWork = false;
    hasRoom = false;
  }

  const hostedActor = env.host.start(
    allocatorMachine.provide({
      actions: {
        gather: ({ self }) => env.clock.soon(() => self.send({ type: "round.due" })),
        allocate: ({ self }) => self.send({ type: "round.done", ...allocate() }),
        retryBlocked: retry,
      },
    }),
    `allocator/${env.managerId}`,
    undefined,
  );
  for (const service of store.all("service")) ports.claim(service.id, service.endpoint?.ports ?? []);
  for (const service of store.all("service")) arriveService(service);
  for (const task of store.all("task")) arrive(task);
  tell();

  return {
    taskChanged(old, task) {
      if (task === null || observedState(task) !== TaskState.NEW) return;
      if (old === null || old.desiredState !== task.desiredState) arrive(task);
    },

    serviceChanged(old, service) {
      if (service === null) {
        if (ports.release((old as Service).id)) hasRoom = true;
        return;
      }
      if (!writing.has(service.id)) {
        const had = old?.endpoint?.ports ?? [];
        const has = service.endpoint?.ports ?? [];
        if (had.length > 0 || has.length > 0) ports.claim(service.id, has);
        arriveService(service);
      }
      hasRoom = true;
    },

    networkChanged() {
      hasRoom = true;
    },

    commitEnded: tell,
    stop: () => hostedActor.stop(),
  };
}
