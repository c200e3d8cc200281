/**
 * Clients that write through every manager for the whole run, a few at each, each with names of its own: they create, update
 * and remove configs. They record acknowledged writes and the gaps between them.
 */
import {
  Annotations,
  type Config,
  ConfigSpec,
  ControlService,
  CreateConfigRequest,
  ListConfigsRequest,
  ListConfigsRequest_Filters,
  RemoveConfigRequest,
  UpdateConfigRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { ask } from "../fixtures/control-client.ts";
import type { Place } from "./place.ts";
import { type Content, WriteRecord } from "./write-record.ts";

const { CreateConfig, UpdateConfig, RemoveConfig, ListConfigs } = ControlService.methods;
/** Clients of each manager: while one waits for an answer, the others continue. */
const clientsPerManager = 3;
/** Milliseconds between two writes of a client. */
const pauseMs = 250;
/** Milliseconds that a client waits for an answer. */
const callMsMax = 4_000;
/** Names that a client has at a time. */
const namesMax = 8;
/** Name prefix of all of the writers' configs. */
const prefix = "chaos-";
const label = "value";

/** Times are in milliseconds of `performance.now()`. */
interface Pace {
  /** When a write last succeeded, or when the last reason for failure ended. */
  lastAt: number;
  gapMsMax: number;
}

export class Writers {
  readonly record = new WriteRecord();
  readonly #random: SimRandom;
  readonly #byManager = new Map<string, Pace>();
  readonly #anywhere: Pace = { lastAt: performance.now(), gapMsMax: 0 };
  #isPaused = false;
  #isStopped = false;
  #underWay = 0;
  readonly #work: Promise<unknown>[] = [];

  constructor(managers: readonly Place[], random: SimRandom) {
    this.#random = random;
    for (const manager of managers) {
      this.#byManager.set(manager.name, { lastAt: performance.now(), gapMsMax: 0 });
      for (let n = 1; n <= clientsPerManager; n += 1)
        this.#work.push(this.#run(manager, `${prefix}${manager.name}-${n}-`));
    }
  }

  /** Resolves when no write is in progress. */
  async pause(): Promise<void> {
    this.#isPaused = true;
    while (this.#underWay > 0) await rest(20);
  }

  /** Resumes writing and measuring. */
  resume(): void {
    this.measure();
    this.#isPaused = false;
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#work);
  }

  /** Restarts the measurement of gaps. */
  measure(): void {
    for (const pace of [this.#anywhere, ...this.#byManager.values()]) {
      pace.lastAt = performance.now();
      pace.gapMsMax = 0;
    }
  }

  /** Longest times without a successful write since `measure`, in milliseconds: at any manager, and at the worst one. */
  gaps(): { readonly anywhereMs: number; readonly worstMs: number; readonly worst: string } {
    const now = performance.now();
    const gap = ({ lastAt, gapMsMax }: Pace): number => Math.max(gapMsMax, now - lastAt);
    const each = [...this.#byManager].map(([worst, pace]) => ({ worst, worstMs: gap(pace) }));
    return { anywhereMs: gap(this.#anywhere), ...each.toSorted((a, b) => b.worstMs - a.worstMs)[0]! };
  }

  /** When a write through this manager last succeeded, in milliseconds of `performance.now()`. */
  lastAt(manager: string): number {
    return this.#byManager.get(manager)?.lastAt ?? 0;
  }

  get isWriting(): boolean {
    return !this.#isPaused && !this.#isStopped;
  }

  async #run(manager: Place, prefixOfClient: string): Promise<void> {
    const random = this.#random.fork(prefixOfClient);
    const names: string[] = [];
    let made = 0;
    let values = 0;
    while (!this.#isStopped) {
      await rest(pauseMs * (0.5 + random.next()));
      if (!this.isWriting) continue;
      if (names.length < namesMax && (names.length === 0 || random.chance(0.3)))
        names.push(`${prefixOfClient}${(made += 1)}`);
      const at = random.below(names.length);
      const name = names[at] as string;
      this.#underWay += 1;
      const isDone = await this.#write(manager, name, `v${(values += 1)}`, random.chance(0.2));
      this.#underWay -= 1;
      if (isDone) names.splice(at, 1);
    }
  }

  /** One write to a name, chosen by the manager's current content. True if the client is done with the name. */
  async #write(manager: Place, name: string, value: string, removes: boolean): Promise<boolean> {
    const found = await this.#look(manager, name);
    if (found === "unknown") return false;
    const content = found !== null && removes ? null : value;
    const outcome = await this.#try(manager, name, content, () => {
      if (found === null) return create(manager, name, value);
      return content === null ? remove(manager, found) : update(manager, found, value);
    });
    // After an unanswered write the client stays with the same name: the write's outcome must show before the next answer.
    return outcome === "acknowledged" && content === null;
  }

  async #look(manager: Place, name: string): Promise<Config | null | "unknown"> {
    const filters = ListConfigsRequest_Filters.create({ names: [name] });
    try {
      const { configs } = await ask(manager, ListConfigs, ListConfigsRequest.create({ filters }), callMsMax);
      return configs[0] ?? null;
    } catch {
      return "unknown";
    }
  }

  async #try(
    manager: Place,
    name: string,
    content: Content,
    write: () => Promise<unknown>,
  ): Promise<"acknowledged" | "refused" | "unknown"> {
    try {
      await write();
    } catch (error) {
      const outcome = didNotHappen(error) ? "refused" : "unknown";
      this.record[outcome](name, content, textOf(error));
      return outcome;
    }
    this.record.acknowledged(name, content);
    const now = performance.now();
    for (const pace of [this.#anywhere, this.#byManager.get(manager.name)]) {
      if (pace === undefined) continue;
      pace.gapMsMax = Math.max(pace.gapMsMax, now - pace.lastAt);
      pace.lastAt = now;
    }
    return "acknowledged";
  }
}

const create = (manager: Place, name: string, value: string): Promise<unknown> =>
  ask(manager, CreateConfig, CreateConfigRequest.create({ spec: specOf(name, value) }), callMsMax);

const update = (manager: Place, { id, meta, spec }: Config, value: string): Promise<unknown> => {
  const changed = specOf(spec?.annotations?.name ?? "", value);
  const request = { configId: id, configVersion: meta?.version ?? null, spec: changed };
  return ask(manager, UpdateConfig, UpdateConfigRequest.create(request), callMsMax);
};

const remove = (manager: Place, { id }: Config): Promise<unknown> =>
  ask(manager, RemoveConfig, RemoveConfigRequest.create({ configId: id }), callMsMax);

/** Only a config's labels may change, so they hold the value. */
function specOf(name: string, value: string): ConfigSpec {
  const annotations = Annotations.create({ name, labels: { [label]: value } });
  return ConfigSpec.create({ annotations, data: new TextEncoder().encode(name) });
}

/** Values of the writers' configs by name, as this manager lists them. */
export async function listed(manager: Place): Promise<Map<string, string>> {
  const filters = ListConfigsRequest_Filters.create({ namePrefixes: [prefix] });
  const { configs } = await ask(manager, ListConfigs, ListConfigsRequest.create({ filters }));
  return new Map(configs.map(({ spec }) => [spec?.annotations?.name ?? "", spec?.annotations?.labels[label] ?? ""]));
}

/** Errors which promise that the write has not happened and will not happen. */
const promises: readonly Status[] = [
  Status.INVALID_ARGUMENT,
  Status.NOT_FOUND,
  Status.ALREADY_EXISTS,
  Status.PERMISSION_DENIED,
  Status.RESOURCE_EXHAUSTED,
  Status.FAILED_PRECONDITION,
  Status.OUT_OF_RANGE,
];

function textOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 80) : String(error);
}

function didNotHappen(error: unknown): boolean {
  return error instanceof RpcError && promises.includes(error.code);
}

function rest(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
