/** A running Swarm, as its manager's Engine API shows it. */
import { Engine, EngineError } from "../../drivers/docker/engine.ts";
import { UserError } from "../../lib/user-error.ts";

type Json = Readonly<Record<string, unknown>>;

/** An object in the Engine API's form. */
export interface Listed {
  readonly id: string;
  readonly name: string;
  /** The spec that would create it again; of a network, the object itself. */
  readonly spec: Json;
  readonly object: Json;
}

export interface Swarm {
  readonly networks: readonly Listed[];
  readonly configs: readonly Listed[];
  readonly secrets: readonly Listed[];
  readonly services: readonly Listed[];
}

function listed(object: Json): Listed {
  const spec = (object["Spec"] ?? {}) as Json;
  return {
    id: (object["ID"] as string | undefined) ?? "",
    name: (spec["Name"] as string | undefined) ?? "",
    spec,
    object,
  };
}

function byName(one: Listed, other: Listed): number {
  return one.name < other.name ? -1 : 1;
}

/** `endpoint`: `unix:///path` or `tcp://host:port`. Throws UserError for any other. */
export function engineAt(endpoint: string): Engine {
  try {
    return new Engine(endpoint);
  } catch (error) {
    throw new UserError((error as Error).message, { cause: error });
  }
}

/** An engine's refusal or silence becomes a UserError. */
export async function asked<Answer>(endpoint: string, answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    // An engine that does not answer is named in the message.
    if (error instanceof EngineError)
      throw new UserError(error.status === 0 ? error.message : `${endpoint}: ${error.message}`, { cause: error });
    throw error;
  }
}

/** `endpoint`: that of a manager. Rejects with UserError. */
export async function readSwarm(endpoint: string): Promise<Swarm> {
  const engine = engineAt(endpoint);
  try {
    const list = async (path: string, query: Readonly<Record<string, string>> = {}): Promise<readonly Json[]> =>
      (await engine.json<readonly Json[] | null>("GET", path, { query })) ?? [];
    const [networks, configs, secrets, services] = await Promise.all([
      list("/networks", { filters: JSON.stringify({ scope: ["swarm"] }) }),
      list("/configs"),
      list("/secrets"),
      list("/services"),
    ]);
    return {
      networks: networks
        .map((object) => ({ id: object["Id"] as string, name: object["Name"] as string, spec: object, object }))
        .toSorted(byName),
      configs: configs.map(listed).toSorted(byName),
      secrets: secrets.map(listed).toSorted(byName),
      services: services.map(listed).toSorted(byName),
    };
  } catch (error) {
    if (error instanceof EngineError) throw new UserError(`cannot read the Swarm: ${error.message}`, { cause: error });
    throw error;
  } finally {
    engine.close();
  }
}
