/**
 * Rehearsals: simulated seconds for each second of CPU time, by the size of the cluster, and the time to found it. A program of its own, with
 * Node's flags of a rehearsal's processes: prints the table, of a small cluster if its argument is `short`.
 */
import { Annotations, ContainerSpec, ReplicatedService, ServiceSpec, TaskSpec } from "../proto/gen/messages.ts";
import type { ClusterPlan, ScenarioPlan, ServicePlan } from "../simulation/rehearsal/plan.ts";
import { rehearse } from "../simulation/rehearsal/run.ts";
import { table } from "./table.ts";

interface Size {
  readonly nodes: number;
  readonly tasks: number;
  /** Simulated length. */
  readonly seconds: number;
  /** Nodes lose power every half hour for a minute, on average, and a service is updated. */
  readonly faults: boolean;
}

const sizes: readonly Size[] = [
  { nodes: 12, tasks: 30, seconds: 3_600, faults: false },
  { nodes: 50, tasks: 500, seconds: 3_600, faults: false },
  { nodes: 50, tasks: 500, seconds: 1_800, faults: true },
  { nodes: 500, tasks: 5_000, seconds: 300, faults: true },
  { nodes: 5_000, tasks: 50_000, seconds: 60, faults: false },
];
const servicesMax = 20;
const fixed = (ms: number) => ({ medianMs: ms, p99Ms: ms });

async function print(short: boolean): Promise<void> {
  const rows = [];
  for (const size of short ? [{ nodes: 3, tasks: 6, seconds: 30, faults: true }] : sizes)
    rows.push(await measured(size));
  const columns = ["cluster", "founded in", "CPU of it", "simulated s per CPU s", "memory"];
  process.stdout.write(table("Rehearsals", columns, rows));
}

async function measured(size: Size): Promise<readonly string[]> {
  const [began, cpu] = [performance.now(), process.cpuUsage()];
  let founded: { readonly ms: number; readonly cpuMs: number } | null = null;
  const outcome = await rehearse(clusterOf(size), scenarioOf(size), 1, {
    onProgress: (ranMs) => {
      if (ranMs > 0) founded ??= { ms: performance.now() - began, cpuMs: cpuMs(cpu) };
    },
  });
  if (outcome.violation !== null) throw new Error(outcome.violation);
  const { cpuMs: foundingMs, ms } = founded ?? { ms: Number.NaN, cpuMs: Number.NaN };
  const speed = outcome.ranMs / (cpuMs(cpu) - foundingMs);
  return [
    `${size.nodes} nodes, ${size.tasks} tasks${size.faults ? ", faults" : ""}`,
    `${(ms / 1_000).toFixed(1)} s`,
    `${(foundingMs / 1_000).toFixed(1)} s`,
    speed.toFixed(speed < 10 ? 1 : 0),
    `${Math.round(process.memoryUsage().rss / 2 ** 20)} MiB`,
  ];
}

function cpuMs(since: NodeJS.CpuUsage): number {
  const { system, user } = process.cpuUsage(since);
  return (system + user) / 1_000;
}

function clusterOf({ faults, nodes, tasks }: Size): ClusterPlan {
  const services = Math.min(servicesMax, tasks);
  return {
    managers: 3,
    networks: [],
    services: Array.from({ length: services }, (_, at) => serviceOf(at, Math.floor(tasks / services), "1")),
    nodes: Array.from({ length: nodes }, (_, at) => ({
      name: `worker-${at + 1}`,
      labels: {},
      nanoCpus: 4_000_000_000n,
      memoryBytes: 8n * 2n ** 30n,
      failures: faults ? { meanUpMs: 1_800_000, meanDownMs: 60_000 } : null,
    })),
  };
}

function serviceOf(at: number, replicas: number, version: string): ServicePlan {
  const spec = ServiceSpec.create({
    annotations: Annotations.create({ name: `service-${at}` }),
    task: TaskSpec.create({ container: ContainerSpec.create({ image: `image-${at}:${version}` }) }),
    replicated: ReplicatedService.create({ replicas }),
  });
  const behaviour = {
    pull: fixed(4_000),
    start: fixed(1_000),
    stop: fixed(500),
    startFailure: 0,
    meanLifeMs: null,
    run: null,
  };
  return { spec, behaviour };
}

function scenarioOf({ faults, nodes, seconds, tasks }: Size): ScenarioPlan {
  const replicas = Math.floor(tasks / Math.min(servicesMax, tasks));
  const steps = faults
    ? [{ atMs: 5_000, action: { kind: "update", service: serviceOf(0, replicas, "2") } } as const]
    : [];
  return { name: `${nodes} nodes`, description: "", durationMs: seconds * 1_000, steps };
}

await print(process.argv[2] === "short");
