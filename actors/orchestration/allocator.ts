/** Hosts the allocator: keeps its bookkeeping in step with the store, and writes its allocations. */
import { allocatorMachine } from "../../machines/allocation/allocator.machine.ts";
import { defaultPoolsOf } from "../../machines/allocation/network.ts";
import { AllocationRounds } from "../../machines/allocation/rounds.ts";
import { waitOf } from "../../machines/wait-meta.ts";
import { Reason, type Service } from "../../proto/gen/messages.ts";
import { Causes, inCause } from "../../runtime/observation/cause.ts";
import type { Environment } from "../environment.ts";
import { now, roundTasksMax, type Part, type Writer } from "./part.ts";
import { Reconciler, type RoundOf } from "./reconciler.ts";

type Held = AllocationRounds["held"];

interface AllocatorPart extends Part {
  /** Why the service is waiting before its tasks can continue, whether it has any or not. */
  explain(service: Service): readonly Reason[];
}

export function startAllocator(env: Environment, writer: Writer): AllocatorPart {
  const { store, telemetry } = env;
  const gauge = telemetry.metrics.gauge(
    "muster_allocator_held",
    "Allocated resources by kind: addresses, subnets, VXLAN ids and published ports.",
  );
  let told: Held = { addresses: 0, subnets: 0, vxlanIds: 0, ports: 0 };
  const rounds = new AllocationRounds(
    {
      network: (idOrName) => store.get("network", idOrName) ?? store.byName("network", idOrName),
      networks: () => store.all("network"),
      service: (id) => store.get("service", id),
      services: () => store.all("service"),
      node: (id) => store.get("node", id),
      nodes: () => store.all("node"),
      nodeCount: () => store.count("node"),
      task: (id) => store.get("task", id),
      tasks: () => store.all("task"),
      defaultPools: () => defaultPoolsOf([...store.all("cluster")][0]),
      complain: ({ id }, reason) => telemetry.log.warn({ network: id, reason }, "cannot allocate a network"),
    },
    roundTasksMax,
  );

  /** Changes of the present commit. */
  const noted = new Causes();

  function decide(): RoundOf<typeof allocatorMachine> {
    const { verdict, operations } = rounds.round(now(env));
    if (operations.length > 0) {
      writer.write(operations, () => {
        rounds.written(operations);
        tell();
      });
    }
    return { verdict };
  }

  function tell(): void {
    const cause = noted.take();
    if (rounds.takeNews()) inCause(cause, () => loop.wake());
    tellHeld(rounds.held);
  }

  function tellHeld(held: Held): void {
    if (isSameHeld(held, told)) return;
    told = held;
    for (const kind of heldKinds) gauge.set(held[kind], { kind });
  }

  const loop = new Reconciler(env, {
    machine: allocatorMachine,
    id: `allocator/${env.managerId}`,
    input: undefined,
    decide,
  });
  tell();

  return {
    taskChanged(old, task) {
      // The allocator ignores its later states.
      if (old === null) noted.note();
      rounds.taskChanged(old, task);
    },
    serviceChanged(old, service) {
      noted.note();
      rounds.serviceChanged(old, service);
    },
    networkChanged(old, network) {
      noted.note();
      rounds.networkChanged(old, network);
    },
    nodeChanged: (old, node) => rounds.nodeChanged(old, node),
    clusterChanged: (old, cluster) => rounds.clusterChanged(old, cluster),
    commitEnded: tell,

    explain(service) {
      const problem = rounds.problemOfService(service.id);
      if (problem === "") return [];
      const facts = { "addresses or ports that the cluster lacks": `its ports and virtual IPs: ${problem}` };
      return [Reason.create({ ...waitOf(allocatorMachine, "blocked", facts), since: service.meta?.updatedAt ?? null })];
    },

    stop() {
      loop.stop();
      // The next leader reports its own allocations.
      tellHeld({ addresses: 0, subnets: 0, vxlanIds: 0, ports: 0 });
    },
  };
}

const heldKinds = ["addresses", "subnets", "vxlanIds", "ports"] as const;

function isSameHeld(a: Held, b: Held): boolean {
  return heldKinds.every((kind) => a[kind] === b[kind]);
}
