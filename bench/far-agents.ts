/**
 * Agents on the far side of a slow link, each kind of link at once: `node bench/far-agents.ts JSON` (`FarOptions`). Measures heartbeats, and
 * the time from the request for a service at the manager to its task at an agent; prints one JSON line (`FarResult[]`).
 */
import { connectUnix } from "../edges/grpc/client.ts";
import {
  Annotations,
  ContainerSpec,
  ControlService,
  CreateServiceRequest,
  DispatcherService,
  HeartbeatRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
} from "../proto/gen/messages.ts";
import { Fleet } from "./fleet.ts";
import { until } from "./peers.ts";

export interface FarOptions {
  readonly host: string;
  readonly port: number;
  readonly socket: string;
  readonly token: string;
  readonly links: readonly { readonly name: string; readonly nodesNats?: string; readonly site?: string }[];
  /** For each link. */
  readonly agents: number;
  /** Heartbeats of each agent, one after the other. */
  readonly beats: number;
  /** Services with one task each, for all links together. */
  readonly services: number;
}

/** Times in milliseconds. */
export interface FarResult {
  readonly name: string;
  readonly heartbeats: readonly number[];
  readonly assignments: readonly number[];
}

/** Between two services, in milliseconds: each task is assigned alone. */
const pauseMs = 100;
/** Assignments that take longer fail the run, in milliseconds. */
const arrivalMsMax = 60_000;

const { agents, beats, links, services, socket, ...manager } = JSON.parse(process.argv[2] ?? "{}") as FarOptions;

const createdAt = new Map<string, number>();
const measured = links.map((link, index) => {
  const [heartbeats, assignments]: [number[], number[]] = [[], []];
  const { name, ...way } = link;
  const seen = new Set<string>();
  const fleet = new Fleet({
    ...manager,
    ...way,
    agents,
    first: index * agents,
    batch: true,
    joinsAtOnce: agents,
    observe: (sent) => {
      if (sent.kind !== "assignments") return;
      for (const { assignment } of sent.message.changes) {
        const service = assignment?.task?.serviceAnnotations?.name ?? "";
        const from = createdAt.get(service);
        if (from === undefined || seen.has(service)) continue;
        seen.add(service);
        assignments.push(performance.now() - from);
      }
    },
  });
  return { name, fleet, heartbeats, assignments };
});

async function beat(fleet: Fleet, into: number[]): Promise<void> {
  const connected = await Promise.all(fleet.agents.map((agent) => agent.connectAgain()));
  await Promise.all(
    connected.map(async ({ channel, sessionId }) => {
      for (let sent = 0; sent < beats; sent += 1) {
        const from = performance.now();
        await channel.unary(DispatcherService.methods.Heartbeat, HeartbeatRequest.create({ sessionId }));
        into.push(performance.now() - from);
      }
    }),
  );
  for (const { channel } of connected) channel.close();
}

async function createServices(): Promise<void> {
  const channel = await connectUnix(socket);
  for (let made = 0; made < services; made += 1) {
    const name = `far-${made}`;
    const spec = ServiceSpec.create({
      annotations: Annotations.create({ name }),
      task: TaskSpec.create({ container: ContainerSpec.create({ image: "bench:1" }) }),
      replicated: ReplicatedService.create({ replicas: 1 }),
    });
    createdAt.set(name, performance.now());
    await channel.unary(ControlService.methods.CreateService, CreateServiceRequest.create({ spec }));
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  channel.close();
}

await Promise.all(measured.map(({ fleet }) => fleet.join()));
await Promise.all(measured.map(({ fleet, heartbeats }) => beat(fleet, heartbeats)));
await createServices();
const arrived = (): number => measured.reduce((sum, { assignments }) => sum + assignments.length, 0);
await until("every assignment", () => arrived() === services, arrivalMsMax);
for (const { fleet, name } of measured) {
  fleet.stop();
  if (fleet.counts.errors > 0)
    process.stderr.write(`${name}: ${fleet.counts.errors} errors, ${fleet.counts.lastError}\n`);
}
const results: readonly FarResult[] = measured.map(({ assignments, heartbeats, name }) => ({
  name,
  heartbeats,
  assignments,
}));
process.stdout.write(`${JSON.stringify(results)}\n`, () => process.exit(0));
