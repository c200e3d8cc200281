/**
 * An hour of steady changes at one manager: services with tasks, and configs, are created and removed, so that the number of objects
 * stays the same after the warm-up. Whatever grows then is a leak, or a history that has not reached its limit.
 */
import { setTimeout as wait } from "node:timers/promises";
import { connectUnix } from "../edges/grpc/client.ts";
import {
  Annotations,
  ConfigSpec,
  ContainerSpec,
  ControlService,
  CreateConfigRequest,
  CreateServiceRequest,
  ListTasksRequest,
  RemoveConfigRequest,
  RemoveServiceRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
} from "../proto/gen/messages.ts";
import type { CollectionGroup } from "../runtime/telemetry/collections.ts";
import { freePort } from "../test/fixtures/ports.ts";
import { Generator } from "./generator.ts";
import { agentsOf } from "./load.ts";
import { startMuster, until } from "./peers.ts";
import { mebibytes, table } from "./table.ts";

const mib = 2 ** 20;
const callTimeoutMs = 60_000;
/** Tasks of each service. */
const replicas = 5;
/** Services and configs that exist at the same time. */
const keptMax = 20;
/** Growth of a group of collections that is shown: by a tenth, and by this many entries. */
const growthMin = 100;

interface Sample {
  readonly minutes: number;
  readonly rss: number;
  /** The heap after a garbage collection. */
  readonly heap: number;
}

/** Kilobytes by which a value grows in a minute: the slope of the line with the least squares. */
function slope(samples: readonly Sample[], of: (sample: Sample) => number): string {
  const mean = (values: readonly number[]): number => values.reduce((sum, each) => sum + each, 0) / values.length;
  const at = mean(samples.map(({ minutes }) => minutes));
  const middle = mean(samples.map(of));
  const over = samples.reduce((sum, each) => sum + (each.minutes - at) * (of(each) - middle), 0);
  const under = samples.reduce((sum, { minutes }) => sum + (minutes - at) ** 2, 0);
  return `${(over / under / 1_000).toFixed(1)} kB`;
}

function grown(before: readonly CollectionGroup[], after: readonly CollectionGroup[]): readonly string[] {
  const nameOf = ({ kind, key, value }: CollectionGroup): string =>
    `${kind} of ${key === "" ? "" : `${key} to `}${value}`;
  const known = new Map(before.map((group) => [nameOf(group), group.entries]));
  return after.flatMap((group) => {
    const was = known.get(nameOf(group)) ?? 0;
    const by = group.entries - was;
    return by >= growthMin && by > was / 10 ? [`${nameOf(group)}: ${was} to ${group.entries} entries`] : [];
  });
}

export async function soakTable(short: boolean): Promise<string> {
  const load = short
    ? { agents: 5, minutes: 1, warmUpMinutes: 0.4, operationsPerMinute: 300, sampleMs: 3_000 }
    : { agents: 50, minutes: 60, warmUpMinutes: 15, operationsPerMinute: 333, sampleMs: 30_000 };
  const port = await freePort();
  const manager = await startMuster(["--metrics", `127.0.0.1:${port}`]);
  const get = async (path: string): Promise<Response> => await fetch(`http://127.0.0.1:${port}${path}`);
  const collections = async () => (await (await get("/debug/collections")).json()) as readonly CollectionGroup[];
  const agents = new Generator(manager, agentsOf({ agents: load.agents, batch: true }));
  const channel = await connectUnix(manager.socket);
  const { methods } = ControlService;
  const begun = performance.now();
  const minutes = (): number => (performance.now() - begun) / 60_000;
  const sample = async (): Promise<Sample> => {
    await collections();
    const text = await (await get("/metrics")).text();
    const metric = (name: string): number => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
    return {
      minutes: minutes(),
      rss: metric("muster_process_resident_memory_bytes"),
      heap: metric("muster_nodejs_heap_size_used_bytes"),
    };
  };
  let operations = 0;
  const kept: { readonly serviceId: string; readonly configId: string }[] = [];
  const remove = async ({ serviceId, configId }: { serviceId: string; configId: string }): Promise<void> => {
    const timeout = { timeoutMs: callTimeoutMs };
    await channel.unary(methods.RemoveService, RemoveServiceRequest.create({ serviceId }), timeout);
    await channel.unary(methods.RemoveConfig, RemoveConfigRequest.create({ configId }), timeout);
    operations += 2;
  };
  const churn = async (): Promise<void> => {
    const annotations = Annotations.create({ name: `soak-${operations}` });
    const timeout = { timeoutMs: callTimeoutMs };
    const task = TaskSpec.create({ container: ContainerSpec.create({ image: "bench:1" }) });
    const replicated = ReplicatedService.create({ replicas });
    const service = ServiceSpec.create({ annotations, task, replicated });
    const config = ConfigSpec.create({ annotations, data: Buffer.alloc(1_000, "x") });
    const made = await channel.unary(methods.CreateService, CreateServiceRequest.create({ spec: service }), timeout);
    const stored = await channel.unary(methods.CreateConfig, CreateConfigRequest.create({ spec: config }), timeout);
    operations += 2;
    kept.push({ serviceId: made.service?.id ?? "", configId: stored.config?.id ?? "" });
    const oldest = kept.length > keptMax ? kept.shift() : undefined;
    if (oldest !== undefined) await remove(oldest);
  };
  try {
    await agents.join();
    const start = await sample();
    const samples: Sample[] = [];
    let warm: readonly CollectionGroup[] | null = null;
    let sampledAt = 0;
    while (minutes() < load.minutes) {
      // Late operations are made up for: their number counts.
      if (operations < minutes() * load.operationsPerMinute) await churn();
      else await wait(50);
      if (minutes() < load.warmUpMinutes || performance.now() - sampledAt < load.sampleMs) continue;
      sampledAt = performance.now();
      warm ??= await collections();
      samples.push(await sample());
    }
    const more = grown(warm ?? [], await collections());
    for (const each of kept.splice(0)) await remove(each);
    const tasks = async () => (await channel.unary(methods.ListTasks, ListTasksRequest.create({}))).tasks.length;
    await until("the removal of all tasks", async () => (await tasks()) === 0, 120_000);
    const end = await sample();
    const rows = [
      [
        `${load.minutes} min, ${load.agents} agents`,
        operations.toLocaleString("en"),
        slope(samples, ({ rss }) => rss),
        slope(samples, ({ heap }) => heap),
        mebibytes(start.rss / mib),
        mebibytes((samples.at(-1)?.rss ?? Number.NaN) / mib),
        mebibytes(end.rss / mib),
        `${((end.rss / start.rss - 1) * 100).toFixed(0)} %`,
      ],
    ];
    const columns = [
      "load",
      "operations",
      "RSS per minute",
      "live heap per minute",
      "RSS at first",
      "loaded",
      "at the end",
      "more than at first",
    ];
    const listed = more.length === 0 ? "none" : `\n\n${more.map((each) => `- ${each}`).join("\n")}`;
    const notes = `Minutes 0 to ${load.warmUpMinutes} are not part of the slopes. Collections that grew since: ${listed}\n`;
    return `${table("Steady changes at one manager", columns, rows)}\n${notes}`;
  } finally {
    channel.close();
    await agents.end();
    await manager.stop();
  }
}
