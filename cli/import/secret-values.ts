/**
 * The values of a Swarm's secrets, from the containers that mount them: a `cat` in a running task, as root. Only the tasks of the asked
 * engine can be reached.
 *
 * SV1: a value is that of the secret's id: a task of an earlier spec may mount another secret under the same name.
 */
import { Engine } from "../../drivers/docker/engine.ts";
import { openSession } from "../../drivers/docker/session.ts";
import type { Listed } from "./swarm.ts";

/** More than a Swarm's largest secret (500 KiB), in bytes: a longer output is something else. */
const valueBytesMax = 512 * 1024;
/** Time for a `cat`, in milliseconds. */
const readMsMax = 20_000;

export interface SecretValue {
  readonly data: Uint8Array;
  /** Id of the container. */
  readonly from: string;
}

interface SecretReference {
  readonly SecretID?: string;
  readonly File?: { readonly Name?: string } | null;
}

interface SwarmTask {
  readonly NodeID?: string;
  readonly Status?: { readonly State?: string; readonly ContainerStatus?: { readonly ContainerID?: string } };
  readonly Spec?: { readonly ContainerSpec?: { readonly Secrets?: readonly SecretReference[] | null } };
}

/** By the secret's name; those that no container here shows are missing. Rejects with EngineError. */
export async function valuesInContainers(
  endpoint: string,
  secrets: readonly Listed[],
): Promise<ReadonlyMap<string, SecretValue>> {
  const engine = new Engine(endpoint);
  try {
    const filters = JSON.stringify({ "desired-state": ["running"] });
    const [{ Swarm: own }, tasks] = await Promise.all([
      engine.json<{ readonly Swarm?: { readonly NodeID?: string } }>("GET", "/info"),
      engine.json<readonly SwarmTask[] | null>("GET", "/tasks", { query: { filters } }),
    ]);
    const here = (tasks ?? []).filter(({ NodeID, Status }) => NodeID === own?.NodeID && Status?.State === "running");
    const values = new Map<string, SecretValue>();
    for (const { id, name, spec } of secrets) {
      // Containers have what became of a template.
      if (spec["Driver"] != null || spec["Templating"] != null) continue;
      const value = await firstValue(engine, placesOf(here, id));
      if (value !== null) values.set(name, value);
    }
    return values;
  } finally {
    engine.close();
  }
}

interface Place {
  readonly container: string;
  readonly path: string;
}

/** SV1 */
function placesOf(tasks: readonly SwarmTask[], secretId: string): readonly Place[] {
  return tasks.flatMap(({ Spec, Status }) => {
    const mounted = Spec?.ContainerSpec?.Secrets?.find(({ SecretID }) => SecretID === secretId)?.File?.Name;
    const container = Status?.ContainerStatus?.ContainerID;
    if (mounted === undefined || container === undefined) return [];
    return [{ container, path: mounted.startsWith("/") ? mounted : `/run/secrets/${mounted}` }];
  });
}

async function firstValue(engine: Engine, places: readonly Place[]): Promise<SecretValue | null> {
  for (const { container, path } of places) {
    const data = await fileIn(engine, container, path);
    if (data !== null) return { data, from: container };
  }
  return null;
}

/** Null if it cannot be read there: the container may have ended, or has no `cat`. */
async function fileIn(engine: Engine, container: string, path: string): Promise<Uint8Array | null> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  const request = {
    command: ["cat", path],
    terminal: null,
    output: (stream: "stdout" | "stderr", bytes: Uint8Array) => {
      size += bytes.length;
      if (stream === "stdout" && size <= valueBytesMax) pieces.push(bytes);
      return true;
    },
    onDrain: () => undefined,
  };
  const identity = { user: "0", directory: "", env: [], privileged: false };
  const session = await openSession(engine, container, request, identity, false).catch(() => null);
  if (session === null) return null;
  session.closeInput();
  const timer = setTimeout(() => session.kill(), readMsMax);
  const { exitCode } = await session.exited;
  clearTimeout(timer);
  return exitCode === 0 && size > 0 && size <= valueBytesMax ? Buffer.concat(pieces) : null;
}
