/**
 * The drivers of a node: one for each of its plugins, and built-in ones (the simulator's). Keeps the plugins running, and
 * reports them in the node's description.
 *
 * AD1: a plugin whose name an earlier agent process recorded is available to its tasks before it has reported again, so no task
 *      counts as lost because its driver starts slowly or not at all.
 * AD2: the description changes at once when a driver is added, removed or changes its health; a change of attributes alone is
 *      reported at the session's next check (`agentSessionTimes.descriptionIntervalMs`), so constant changes cost no more
 *      sessions than that.
 * AD3: a plugin that was removed from the node while its tasks may run is kept for them: they count as running until their
 *      state is known, are stopped if its process still lives or once it is restored, and the description reports it as
 *      removed. It gets no new tasks. A removed plugin without tasks is ended.
 * AD4: a name belongs to one plugin: a node does not start with two plugins of one name, since either might get its tasks. One
 *      that reports a name in use only later gets no tasks, which is logged.
 */
import type { DriverPluginNews } from "../../machines/driver/plugin.machine.ts";
import { containerDriver } from "../../machines/driver/container-task.ts";
import { driverLabels, enginePlugins } from "../../machines/driver/labels.ts";
import type { Task } from "../../proto/gen/messages.ts";
import type { PluginLauncher } from "../../runtime/ports/plugins.ts";
import { Spec, type Attribute, type FingerprintResponse } from "../../proto/gen/nomad.ts";
import type { AgentPlugins, AgentPorts, DriverBinary, TaskDriver } from "./ports.ts";
import type { Discovery } from "./discovery.ts";
import { DriverPluginActor, knownPlugin } from "../driver/plugin.ts";
import { driverPorts, PluginDriver } from "../driver/plugin-driver.ts";
import { TaskNetworks } from "./task-networks.ts";
import { sentence } from "../sentence.ts";
import { LastResult } from "../../lib/last-result.ts";

/** Prefix of the records of the plugins' names; the binary's name follows. */
const kindRecords = "driver-kind.";
/**
 * How long the node's first session waits for its drivers' first reports, in milliseconds. A Node plugin needs half a second,
 * more on a busy machine; without the wait, the node would need a second session as soon as they report.
 */
const firstWordMsMax = 5_000;
const takenAway = "its executable was removed from this node";
/** Delay that merges quick changes of a driver, in milliseconds: each change costs the node a session. */
const changeMs = 300;

interface Hosted {
  /** AD3 */
  readonly isTakenAway: boolean;
  readonly makesCgroups: boolean;
  /** Path of its executable; empty for a removed one. */
  readonly path: string;
  /** It reports another plugin's name. AD4 */
  hasClashed: boolean;
  readonly plugin: DriverPluginActor;
  news: DriverPluginNews | null;
  fingerprint: FingerprintResponse | null;
  /** Resolves when it has reported its health, or has failed, at least once. */
  readonly spoke: PromiseWithResolvers<void>;
}

/** All that the facts have of a built-in driver. */
type GivenSource = readonly [kind: string, advertised: TaskDriver["advertised"]];

/** All that the facts have of a plugin's driver. */
type DriverSource = readonly [
  isTakenAway: boolean,
  isHealthy: boolean,
  description: DriverPluginActor["description"],
  news: DriverPluginNews | null,
  fingerprint: FingerprintResponse | null,
];

/** The drivers' part of the node's description. */
export interface DriverFacts {
  /** Kinds of tasks that can be started here now. */
  readonly kinds: readonly string[];
  /** Labels of the engine. */
  readonly labels: Readonly<Record<string, string>>;
  /** Plugins of the engine behind the docker driver, and those that built-in drivers advertise. */
  readonly engine: NonNullable<TaskDriver["advertised"]>;
}

export class AgentDrivers {
  readonly #ports: AgentPorts;
  readonly #given: ReadonlyMap<string, TaskDriver>;
  readonly #advertised: readonly GivenSource[];
  readonly #hosted: Hosted[] = [];
  readonly #byKind = new Map<string, { readonly driver: PluginDriver; readonly hosted: Hosted }>();
  readonly #onChange: () => void;
  readonly #networks: TaskNetworks | null;
  readonly #facts = new LastResult(factsOf);
  #told = "";
  #isClosed = false;
  #isChanging = false;
  #conflict: string | null = null;

  /** `onChange`: called when the drivers' health in `facts` has changed. */
  constructor(ports: AgentPorts, given: readonly TaskDriver[], onChange: () => void, discovery: Discovery | null) {
    this.#ports = ports;
    this.#given = new Map(given.map((driver) => [driver.kind, driver]));
    this.#advertised = [...this.#given.values()].map(({ advertised, kind }) => [kind, advertised]);
    this.#onChange = onChange;
    this.#networks =
      ports.networks === undefined ? null : new TaskNetworks({ ...ports, tools: ports.networks, discovery });
  }

  /** Starts the plugins, or reattaches to them. */
  async load(): Promise<void> {
    const { plugins } = this.#ports;
    for (const binary of plugins?.binaries ?? []) {
      await this.#host(plugins as AgentPlugins, binary);
    }
  }

  /** AD3. `hasTasks`: whether tasks of a kind may run here. */
  async loadTakenAway(hasTasks: (kind: string) => boolean): Promise<void> {
    const { disk, plugins } = this.#ports;
    if (plugins === undefined) return;
    const here = new Set(plugins.binaries.map(({ binary }) => binary.name));
    for (const record of await disk.list(kindRecords)) {
      const name = record.slice(kindRecords.length);
      const kind = await disk.load(record);
      if (here.has(name) || kind === null) continue;
      const hosted = await this.#hostTakenAway(plugins, name);
      if (hasTasks(new TextDecoder().decode(kind))) continue;
      void hosted.plugin.end();
      await disk.remove(record);
    }
  }

  /** Restores the networks of tasks of an earlier agent process, and removes those of ended tasks. */
  async loadNetworks(mayRun: (taskId: string) => boolean): Promise<void> {
    await this.#networks?.load(mayRun);
  }

  /** Resolves when every plugin has reported its health or has failed, but in bounded time. */
  async firstWord(): Promise<void> {
    if (this.#hosted.length === 0) return;
    const { clock } = this.#ports;
    const late = Promise.withResolvers<void>();
    const timer = clock.setTimeout(() => late.resolve(), firstWordMsMax);
    await Promise.race([this.settled(), late.promise]);
    clock.clearTimeout(timer);
    this.#told = this.#signature();
  }

  /** AD4. A sentence on two plugins with one name; null: none have reported any. */
  get conflict(): string | null {
    return this.#conflict;
  }

  /** Resolves when every plugin has reported its health or has failed at least once. */
  async settled(): Promise<void> {
    await Promise.all(this.#hosted.map(({ spoke }) => spoke.promise));
  }

  /** Null when no known driver here runs such tasks. */
  of({ spec }: Task): TaskDriver | null {
    const kind = spec?.container == null ? (spec?.generic?.kind ?? "") : containerDriver;
    return this.#byKind.get(kind)?.driver ?? this.#given.get(kind) ?? null;
  }

  /** The task's driver if it is a plugin's, else null. */
  pluginOf(task: Task): PluginDriver | null {
    const driver = this.of(task);
    return driver instanceof PluginDriver ? driver : null;
  }

  /** All known kinds, for people. */
  kinds(): readonly string[] {
    return [...new Set([...this.#given.keys(), ...this.#byKind.keys()])];
  }

  /** The same object while nothing changes. */
  facts(): DriverFacts {
    const found = new Map<string, DriverSource>();
    for (const [kind, { hosted }] of this.#byKind) {
      const { fingerprint, isTakenAway, news, plugin } = hosted;
      found.set(kind, [isTakenAway, plugin.isHealthy, plugin.description, news, fingerprint]);
    }
    return this.#facts.of(this.#advertised, found);
  }

  /** Stops the drivers and the plugins; their tasks keep running. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const driver of this.#given.values()) driver.close();
    for (const { driver } of this.#byKind.values()) driver.close();
    this.#networks?.stop();
    await Promise.all(this.#hosted.map(({ plugin }) => plugin.end()));
    await this.#ports.plugins?.homes.close();
  }

  /** Reattaches to its process if it lives, and starts no other. */
  #hostTakenAway(plugins: AgentPlugins, name: string): Promise<Hosted> {
    const launcher: PluginLauncher = {
      reattach: (...where) => plugins.launcher.reattach(...where),
      launch: async () => ({ kind: "failed", reason: takenAway }),
    };
    const binary = { name, path: "", args: [], env: {}, autoMtls: false };
    return this.#host({ ...plugins, launcher }, { binary, config: null, makesCgroups: false }, true);
  }

  async #host(plugins: AgentPlugins, binary: DriverBinary, isTakenAway = false): Promise<Hosted> {
    const ports = driverPorts(this.#ports, plugins);
    const { name } = binary.binary;
    const known = await knownPlugin(ports.disk, name);
    const kind = await ports.disk.load(kindRecords + name);
    const plugin = new DriverPluginActor(
      ports,
      {
        binary: binary.binary,
        config: binary.config,
        agent: plugins.agent,
        // Deferred until the actor exists and has entered the reported state.
        onNews: (news) => ports.clock.soon(() => this.#heard(hosted, news)),
        onFingerprint: (fingerprint) => {
          hosted.fingerprint = fingerprint;
        },
        onTaskEvent: ({ message, taskId }) =>
          ports.telemetry.log.info({ plugin: name, task: taskId, message }, "message of a driver on a task"),
      },
      known,
    );
    const spoke = Promise.withResolvers<void>();
    const { makesCgroups } = binary;
    const hosted: Hosted = {
      isTakenAway,
      makesCgroups,
      path: binary.binary.path,
      hasClashed: false,
      plugin,
      news: null,
      fingerprint: null,
      spoke,
    };
    this.#hosted.push(hosted);
    if (kind !== null) this.#register(new TextDecoder().decode(kind), hosted);
    return hosted;
  }

  #register(kind: string, hosted: Hosted): void {
    const { facts, plugins } = this.#ports;
    const other = this.#byKind.get(kind);
    if (other !== undefined) {
      if (other.hosted !== hosted) this.#clash(kind, other.hosted, hosted);
      return;
    }
    const given = plugins as AgentPlugins;
    const all = hosted.makesCgroups ? { ...given, cgroups: null } : given;
    const options = { kind, plugin: hosted.plugin, plugins: all, facts, networks: this.#networks };
    this.#byKind.set(kind, { driver: new PluginDriver(driverPorts(this.#ports, all), options), hosted });
  }

  /** AD4. A removed plugin does not conflict. */
  #clash(kind: string, first: Hosted, second: Hosted): void {
    if (second.hasClashed) return;
    second.hasClashed = true;
    const named = ({ path, plugin }: Hosted): string => `${plugin.name} (${path || "removed"})`;
    const sentence = `two driver plugins have the name ${kind}: ${named(first)} and ${named(second)}`;
    this.#ports.telemetry.log.error({ kind }, `${sentence}: the second gets no tasks`);
    if (!first.isTakenAway && !second.isTakenAway)
      this.#conflict ??= `${sentence}: remove one of them (--driver NAME=none disables a built-in one)`;
  }

  #heard(hosted: Hosted, news: DriverPluginNews): void {
    if (this.#isClosed) return;
    hosted.news = news;
    const name = hosted.plugin.description?.name ?? null;
    if (name !== null && this.#byKind.get(name)?.hosted !== hosted) {
      const isNew = !this.#byKind.has(name);
      this.#register(name, hosted);
      if (isNew)
        this.#ports.disk
          .save(kindRecords + hosted.plugin.name, new TextEncoder().encode(name))
          .catch((error: unknown) =>
            this.#ports.telemetry.log.warn({ error: sentence(error), plugin: name }, "cannot record a plugin's name"),
          );
    }
    if (news.state !== "starting" && news.state !== "awaiting") hosted.spoke.resolve();
    this.#changed();
  }

  /** AD2. Deferred until the actor has entered its new state. */
  #changed(): void {
    if (this.#isChanging) return;
    this.#isChanging = true;
    this.#ports.clock.setTimeout(() => {
      this.#isChanging = false;
      const now = this.#signature();
      if (this.#isClosed || now === this.#told) return;
      this.#told = now;
      this.#onChange();
    }, changeMs);
  }

  #signature(): string {
    const states = [...this.#byKind].map(([kind, { hosted }]) => `${kind} ${takesTasks(hosted)}`);
    return states.sort().join("\n");
  }
}

function factsOf(given: readonly GivenSource[], found: ReadonlyMap<string, DriverSource>): DriverFacts {
  const kinds = new Set(given.filter(([, advertised]) => advertised === undefined).map(([kind]) => kind));
  const labels: Record<string, string> = {};
  for (const [kind, [isTakenAway, isHealthy, description, news, fingerprint]] of found) {
    if (isHealthy && !isTakenAway) kinds.add(kind);
    const schema = description?.taskSchema ?? null;
    Object.assign(
      labels,
      driverLabels(kind, {
        health: isTakenAway ? "removed" : (news?.state ?? "starting"),
        reason: isTakenAway ? takenAway : (news?.reason ?? ""),
        version: description?.version ?? "",
        attributes: Object.entries(fingerprint?.attributes ?? {}).map(([name, value]) => [name, textOf(value)]),
        schema: schema === null ? null : Spec.encode(schema),
      }),
    );
  }
  const [, isDocker = false] = found.get(containerDriver) ?? [];
  const engine = [...(isDocker ? enginePlugins(labels) : []), ...given.flatMap(([, advertised]) => advertised ?? [])];
  return { kinds: [...kinds].sort(), labels, engine };
}

function takesTasks({ isTakenAway, plugin }: Hosted): boolean {
  return plugin.isHealthy && !isTakenAway;
}

function textOf({ boolVal, floatVal, intVal, stringVal, unit }: Attribute): string {
  const value = stringVal ?? boolVal ?? intVal ?? floatVal ?? "";
  return unit === "" ? String(value) : `${value} ${unit}`;
}
