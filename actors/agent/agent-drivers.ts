/**
 * What a node runs tasks with: a driver for each of its plugins, and those that it was given (the simulator's). Keeps the
 * plugins running, and tells what the node's description has to say of them.
 *
 * AD1: a plugin whose name an earlier life of the agent knew is there for its tasks before it has spoken again, so none of
 *      them counts as lost because its driver starts slowly, or not at all.
 * AD2: the description changes at once when a driver comes, goes, or changes its health; a change of its attributes alone is
 *      told when the session next looks (`agentSessionTimes.descriptionIntervalMs`), so one that changes all the time costs no
 *      more sessions than that.
 * AD3: a plugin that was taken away from the node while tasks of it may run is kept for these: they count as running until
 *      somebody knows otherwise, are stopped where its process still lives or once it is put back, and the node says so. It
 *      gets no new tasks. One without tasks is ended.
 * AD4: one name is one plugin's: a node does not start with two that claim it, since which one ran its tasks would be chance. One that
 *      says so only later gets no tasks, which is logged.
 */
import type { DriverPluginNews } from "../../machines/driver/driver-plugin.ts";
import { containerDriver } from "../../machines/driver/container-task.ts";
import { driverLabels, enginePlugins, type EnginePlugin } from "../../machines/driver/driver-labels.ts";
import type { Task } from "../../proto/gen/messages.ts";
import type { PluginLauncher } from "../../runtime/plugins.ts";
import { Spec, type Attribute, type FingerprintResponse } from "../../proto/gen/nomad.ts";
import type { AgentPlugins, AgentPorts, DriverBinary, TaskDriver } from "./agent-ports.ts";
import type { Discovery } from "./discovery.ts";
import { DriverPluginActor, knownPlugin } from "./driver-plugin.ts";
import { driverPorts, PluginDriver } from "./plugin-driver.ts";
import { TaskNetworks } from "./task-networks.ts";
import { sentence } from "../sentence.ts";

/** Prefix of the records of the plugins' names; that of the binary follows. */
const kindRecords = "driver-kind.";
/**
 * How long the node's first session waits for the first word of its drivers. A Node plugin needs half a second, on a busy
 * machine some; a node that came without would need another session as soon as they have spoken.
 */
const firstWordMsMax = 5_000;
const takenAway = "its executable was taken away from this node";
/** A driver that goes and comes again at once is one change: each costs the node a session. */
const changeMs = 300;

interface Hosted {
  /** AD3 */
  readonly isTakenAway: boolean;
  readonly makesCgroups: boolean;
  /** Of its executable; empty for one that was taken away. */
  readonly path: string;
  /** It calls itself as another does. AD4 */
  hasClashed: boolean;
  readonly plugin: DriverPluginActor;
  news: DriverPluginNews | null;
  fingerprint: FingerprintResponse | null;
  /** It has said how it is, or has failed, at least once. */
  readonly spoke: PromiseWithResolvers<void>;
}

/** What the node's description says. */
export interface DriverFacts {
  /** Kinds of tasks that can be started here now. */
  readonly kinds: readonly string[];
  /** For the engine's labels. */
  readonly labels: Readonly<Record<string, string>>;
  /** What the engine behind the docker driver has for containers. */
  readonly engine: readonly EnginePlugin[];
}

export class AgentDrivers {
  readonly #ports: AgentPorts;
  readonly #given: ReadonlyMap<string, TaskDriver>;
  readonly #hosted: Hosted[] = [];
  readonly #byKind = new Map<string, { readonly driver: PluginDriver; readonly hosted: Hosted }>();
  readonly #onChange: () => void;
  readonly #networks: TaskNetworks | null;
  #told = "";
  #isClosed = false;
  #isChanging = false;
  #conflict: string | null = null;

  /** `onChange`: what `facts` says of the drivers' health has changed. */
  constructor(
    ports: AgentPorts,
    given: readonly TaskDriver[],
    onChange: () => void,
    discovery: Discovery | null = null,
  ) {
    this.#ports = ports;
    this.#given = new Map(given.map((driver) => [driver.kind, driver]));
    this.#onChange = onChange;
    this.#networks =
      ports.networks === undefined ? null : new TaskNetworks({ ...ports, tools: ports.networks, discovery });
  }

  /** Starts the plugins, or finds them again. */
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

  /** Takes up the networks of tasks of an earlier life, and takes away those of tasks that are over. */
  async loadNetworks(mayRun: (taskId: string) => boolean): Promise<void> {
    await this.#networks?.load(mayRun);
  }

  /** Resolves when every plugin has said how it is, or has failed, but in bounded time. */
  async firstWord(): Promise<void> {
    if (this.#hosted.length === 0) return;
    const { clock } = this.#ports;
    const late = Promise.withResolvers<void>();
    const timer = clock.setTimeout(() => late.resolve(), firstWordMsMax);
    await Promise.race([this.settled(), late.promise]);
    clock.clearTimeout(timer);
    this.#told = this.#signature();
  }

  /** AD4. Two plugins that claim one name, in a sentence; null: none that have spoken. */
  get conflict(): string | null {
    return this.#conflict;
  }

  /** Resolves when every plugin has said how it is, or has failed, at least once. */
  async settled(): Promise<void> {
    await Promise.all(this.#hosted.map(({ spoke }) => spoke.promise));
  }

  /** Null: nobody here runs such tasks, as far as is known. */
  of({ spec }: Task): TaskDriver | null {
    const kind = spec?.container == null ? (spec?.generic?.kind ?? "") : containerDriver;
    return this.#byKind.get(kind)?.driver ?? this.#given.get(kind) ?? null;
  }

  /** The driver that was made for a plugin; null for another task's. */
  pluginOf(task: Task): PluginDriver | null {
    const driver = this.of(task);
    return driver instanceof PluginDriver ? driver : null;
  }

  /** All that are known, for people. */
  kinds(): readonly string[] {
    return [...new Set([...this.#given.keys(), ...this.#byKind.keys()])];
  }

  facts(): DriverFacts {
    const kinds = new Set(this.#given.keys());
    const labels: Record<string, string> = {};
    for (const [kind, { hosted }] of this.#byKind) {
      const { fingerprint, news, plugin } = hosted;
      if (takesTasks(hosted)) kinds.add(kind);
      const schema = plugin.description?.taskSchema ?? null;
      Object.assign(
        labels,
        driverLabels(kind, {
          health: hosted.isTakenAway ? "removed" : (news?.state ?? "starting"),
          reason: hosted.isTakenAway ? takenAway : (news?.reason ?? ""),
          version: plugin.description?.version ?? "",
          attributes: Object.entries(fingerprint?.attributes ?? {}).map(([name, value]) => [name, textOf(value)]),
          schema: schema === null ? null : Spec.encode(schema),
        }),
      );
    }
    const docker = this.#byKind.get(containerDriver)?.hosted;
    const isDocker = docker?.plugin.isHealthy === true;
    return { kinds: [...kinds].sort(), labels, engine: isDocker ? enginePlugins(labels) : [] };
  }

  /** Ends the watching, and the plugins; their tasks go on. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const driver of this.#given.values()) driver.close();
    for (const { driver } of this.#byKind.values()) driver.close();
    this.#networks?.stop();
    await Promise.all(this.#hosted.map(({ plugin }) => plugin.end()));
    await this.#ports.plugins?.homes.close();
  }

  /** Its process is found again where it lives, and no other is started. */
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
        // Once it has been made, and has taken the state that it tells of.
        onNews: (news) => ports.clock.soon(() => this.#heard(hosted, news)),
        onFingerprint: (fingerprint) => {
          hosted.fingerprint = fingerprint;
        },
        onTaskEvent: ({ message, taskId }) =>
          ports.telemetry.log.info({ plugin: name, task: taskId, message }, "a driver says of a task"),
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

  /** AD4. One that was taken away stands in nobody's way. */
  #clash(kind: string, first: Hosted, second: Hosted): void {
    if (second.hasClashed) return;
    second.hasClashed = true;
    const named = ({ path, plugin }: Hosted): string => `${plugin.name} (${path || "taken away"})`;
    const sentence = `two driver plugins call themselves ${kind}: ${named(first)} and ${named(second)}`;
    this.#ports.telemetry.log.error({ kind }, `${sentence}: the second gets no tasks`);
    if (!first.isTakenAway && !second.isTakenAway)
      this.#conflict ??= `${sentence}: leave one of them out (--driver NAME=none for our own)`;
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

  /** AD2. After the actor has taken its new state. */
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

function takesTasks({ isTakenAway, plugin }: Hosted): boolean {
  return plugin.isHealthy && !isTakenAway;
}

function textOf({ boolVal, floatVal, intVal, stringVal, unit }: Attribute): string {
  const value = stringVal ?? boolVal ?? intVal ?? floatVal ?? "";
  return unit === "" ? String(value) : `${value} ${unit}`;
}
