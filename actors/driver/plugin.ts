/**
 * Hosts the chart of one driver plugin: starts and configures it, follows its streams, and provides its client to the actors of
 * its tasks.
 */
import {
  driverPluginMachine,
  type DriverPluginEvent,
  type DriverPluginNews,
} from "../../machines/driver/plugin.machine.ts";
import {
  FingerprintResponse_HealthState,
  NomadConfig,
  PluginType,
  SetConfigRequest,
  type DriverCapabilities,
  type DriverTaskEvent,
  type FingerprintResponse,
  type NomadDriverConfig,
  type Spec,
} from "../../proto/gen/nomad.ts";
import { driverApiVersion } from "../../lib/driver-api.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import { encodeConfig, problemText, type ConfigInput } from "../../lib/hclspec/index.ts";
import type {
  DriverClient,
  PluginAddress,
  PluginBinary,
  PluginLauncher,
  RunningPlugin,
} from "../../runtime/ports/plugins.ts";
import type { Clock, Random, Telemetry, TimerHandle } from "../../runtime/ports/index.ts";
import type { ReceivingCall } from "../../runtime/ports/rpc.ts";
import type { AgentDisk } from "../agent/ports.ts";
import type { Owner } from "../../runtime/host.ts";
import { sentence } from "../sentence.ts";

/** How long a plugin may take to exit on request, in milliseconds (Nomad's value). */
const stopGraceMs = 2_000;
/** Delay before an ended stream of events is reopened, in milliseconds. */
const eventsRetryMs = 5_000;
/** Prefix of the records of plugins' addresses; the name follows. */
const pluginRecords = "driver-plugin.";

export interface DriverPluginPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly host: Host;
  readonly disk: AgentDisk;
  readonly launcher: PluginLauncher;
}

interface DriverPluginOptions {
  readonly binary: PluginBinary;
  /** As written by the operator; null: none. */
  readonly config: ConfigInput;
  /** Facts on the node for every driver: its ports and its processors. */
  readonly agent: NomadDriverConfig;
  readonly onNews: (news: DriverPluginNews) => void;
  readonly onFingerprint: (fingerprint: FingerprintResponse) => void;
  readonly onTaskEvent: (event: DriverTaskEvent) => void;
}

/** A plugin's description of itself. */
export interface DriverDescription {
  /** Its name in services. */
  readonly name: string;
  readonly version: string;
  readonly capabilities: DriverCapabilities | null;
  /** Schema of its tasks' configuration; null: they have none. */
  readonly taskSchema: Spec | null;
}

const healthOf = {
  [FingerprintResponse_HealthState.HEALTHY]: "healthy",
  [FingerprintResponse_HealthState.UNHEALTHY]: "unhealthy",
  [FingerprintResponse_HealthState.UNDETECTED]: "undetected",
} as const;

export class DriverPluginActor {
  readonly name: string;
  readonly #ports: DriverPluginPorts;
  readonly #options: DriverPluginOptions;
  readonly #actor: HostedActor<typeof driverPluginMachine>;
  readonly #ready: (() => void)[] = [];
  readonly #ended: (() => void)[] = [];
  /** Address of an earlier agent's plugin. */
  #known: PluginAddress | null;
  #launching: Promise<RunningPlugin | null> | null = null;
  #plugin: RunningPlugin | null = null;
  #description: DriverDescription | null = null;
  #streams: ReceivingCall[] = [];
  #eventsTimer: TimerHandle | null = null;
  /** Writes to the disk, one after the other. */
  #writes: Promise<void> = Promise.resolve();
  #isReleased = false;

  /** Starts the plugin at once, or reattaches to it. `known`: what `knownPlugin` found on the disk. */
  constructor(ports: DriverPluginPorts, options: DriverPluginOptions, known: PluginAddress | null) {
    this.#ports = ports;
    this.#options = options;
    this.#known = known;
    this.name = options.binary.name;
    const input = { name: this.name, isKnown: known !== null };
    this.#actor = ports.host.start(driverPluginMachine, `driver-plugin/${this.name}`, input, this.#owner());
    this.#send({ type: "plugin.wanted" });
  }

  /** Its process id; null while it is not serving. */
  get pid(): number | null {
    return this.#serves() ? (this.#plugin?.pid ?? null) : null;
  }

  /** Null while it is not serving. */
  get client(): DriverClient | null {
    return this.#serves() ? (this.#plugin?.driver ?? null) : null;
  }

  /** Its last description; null until the first. */
  get description(): DriverDescription | null {
    return this.#description;
  }

  /** Whether new tasks may be started on it. */
  get isHealthy(): boolean {
    return this.#actor.snapshot.hasTag("healthy");
  }

  /** Calls back once, as soon as it is serving: at the end of this turn if it already is. */
  whenServing(listener: () => void): void {
    this.#ready.push(listener);
    if (this.#serves()) this.#ports.clock.soon(() => this.#tellReady());
  }

  /** Ends it; its tasks keep running. Resolves when it has exited. */
  end(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#actor.snapshot.matches("stopped")) {
        resolve();
        return;
      }
      this.#ended.push(resolve);
      this.#send({ type: "plugin.unwanted" });
    });
  }

  /** Detaches from it: it keeps running, and a later agent reattaches to it. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#endStreams();
    this.#actor.stop();
    this.#plugin?.release();
    this.#plugin = null;
  }

  #serves(): boolean {
    if (this.#isReleased || this.#plugin?.isConnected !== true) return false;
    return this.#actor.snapshot.hasTag("serving");
  }

  #tellReady(): void {
    if (!this.#serves()) return;
    for (const listener of this.#ready.splice(0)) listener();
  }

  #send(event: DriverPluginEvent): void {
    if (this.#isReleased) return;
    this.#actor.send(event);
    if (event.type === "configure.done") this.#tellReady();
  }

  #owner(): Owner<typeof driverPluginMachine> {
    return {
      effects: {
        reattach: () => this.#reattach(),
        launch: () => this.#launch(),
        configure: ({ isKnown }) => this.#configure(isKnown),
        watchFingerprint: () => this.#watchFingerprint(),
        watchEvents: () => this.#watchEvents(),
        checkHealth: ({ timeoutMs }) => this.#checkHealth(timeoutMs),
        endStreams: () => this.#endStreams(),
        endProcess: () => void this.#endProcess(),
        announce: (news) => this.#announce(news),
      },
      draw: drawUpperHalf(this.#ports.random),
    };
  }

  #announce(news: DriverPluginNews): void {
    const { log } = this.#ports.telemetry;
    const level = news.state === "restarting" || news.state === "unhealthy" ? "warn" : "info";
    log[level]({ plugin: this.name, state: news.state, reason: news.reason }, "driver plugin");
    this.#options.onNews(news);
    if (news.state === "stopped") for (const listener of this.#ended.splice(0)) listener();
  }

  #reattach(): void {
    const known = this.#known;
    this.#known = null;
    if (known === null) {
      this.#send({ type: "launch.failed", reason: "its address was not recorded" });
      return;
    }
    this.#follow(this.#ports.launcher.reattach(this.name, known), false);
  }

  #launch(): void {
    const { launcher } = this.#ports;
    this.#follow(
      launcher.launch(this.#options.binary, (pid) => this.#send({ type: "process.spawned", pid })),
      true,
    );
  }

  /** `isNew`: its address is not on the disk yet. */
  #follow(outcome: ReturnType<PluginLauncher["reattach"]>, isNew: boolean): void {
    this.#launching = outcome.then((launched) => {
      this.#launching = null;
      if (launched.kind === "failed") {
        this.#send({ type: "launch.failed", reason: launched.reason });
        return null;
      }
      const { plugin } = launched;
      if (this.#isReleased) {
        plugin.release();
        return null;
      }
      this.#plugin = plugin;
      this.#record(plugin.address, isNew);
      plugin.onExit((how) => {
        if (this.#plugin !== plugin) return;
        this.#plugin = null;
        this.#record(null);
        this.#send({ type: "process.exited", how });
      });
      this.#send({ type: "plugin.connected", pid: plugin.pid });
      return plugin;
    });
  }

  /**
   * Saves or deletes the plugin's address. A new plugin that cannot be recorded, for example on a full disk, is ended: the next
   * agent would start a second one beside it.
   */
  #record(address: PluginAddress | null, isNew = false): void {
    const { disk, telemetry } = this.#ports;
    const name = pluginRecords + this.name;
    this.#writes = this.#writes
      .then(() =>
        address === null ? disk.remove(name) : disk.save(name, new TextEncoder().encode(JSON.stringify(address))),
      )
      .catch((error: unknown) => {
        telemetry.log.warn(
          { error, plugin: this.name },
          "cannot record a plugin's address: a later agent will not find it",
        );
        if (isNew && this.#plugin?.address === address) void this.#plugin?.stop(0);
      });
  }

  #configure(isKnown: boolean): void {
    const plugin = this.#plugin;
    if (plugin === null) return; // its exit event follows
    this.#told(plugin.driver, isKnown).then(
      (description) => {
        if (this.#plugin !== plugin) return;
        this.#description = description;
        this.#send({ type: "configure.done" });
      },
      (error: unknown) => {
        if (this.#plugin === plugin) this.#send({ type: "configure.failed", reason: sentence(error) });
      },
    );
  }

  async #told(driver: DriverClient, isKnown: boolean): Promise<DriverDescription> {
    const info = await driver.pluginInfo();
    if (info.type !== PluginType.DRIVER) throw new Error(`not a task driver, but a plugin of type ${info.type}`);
    if (info.name === "") throw new Error("the plugin reports no name");
    if (!info.pluginApiVersions.some((version) => version.replace(/^v/, "") === driverApiVersion.slice(1)))
      throw new Error(
        `the plugin supports ${info.pluginApiVersions.join(", ") || "no version"} of the driver interface, not ${driverApiVersion}`,
      );
    // A reattached plugin is already configured, and a second configuration would be a change behind its tasks' back.
    if (!isKnown) await driver.setConfig(await this.#config(driver));
    await driver.init();
    const taskSchema = await driver.taskConfigSchema();
    const capabilities = await driver.capabilities();
    return { name: info.name, version: info.pluginVersion, capabilities, taskSchema };
  }

  async #config(driver: DriverClient): Promise<SetConfigRequest> {
    const { config, agent } = this.#options;
    const spec = await driver.configSchema();
    let msgpackConfig: Uint8Array = new Uint8Array(0);
    if (spec === null && config !== null) throw new Error("the plugin accepts no configuration, but one is given");
    if (spec !== null) {
      const encoded = encodeConfig(spec, config ?? {});
      if (encoded.kind === "bad-schema") throw new Error(encoded.reason);
      if (encoded.kind === "invalid")
        throw new Error(`invalid plugin configuration: ${encoded.problems.map(problemText).join("; ")}`);
      msgpackConfig = encoded.bytes;
    }
    return SetConfigRequest.create({
      msgpackConfig,
      nomadConfig: NomadConfig.create({ driver: agent }),
      pluginApiVersion: driverApiVersion,
    });
  }

  #watchFingerprint(): void {
    const plugin = this.#plugin;
    if (plugin === null) return;
    const call = plugin.driver.fingerprint({
      onMessage: (fingerprint) => {
        const { health, healthDescription, err } = fingerprint;
        // An unknown health value of a later version counts as unhealthy.
        const known = healthOf[health] ?? "unhealthy";
        this.#options.onFingerprint(fingerprint);
        this.#send(
          err === ""
            ? { type: "fingerprint.received", health: known, description: healthDescription }
            : { type: "fingerprint.received", health: "unhealthy", description: `failed to fingerprint: ${err}` },
        );
      },
      onEnd: (error) => {
        if (this.#plugin !== plugin || !this.#streams.includes(call)) return;
        this.#streams = this.#streams.filter((one) => one !== call);
        this.#send({ type: "fingerprint.lost", reason: error === null ? "the stream ended" : sentence(error) });
      },
    });
    this.#streams.push(call);
  }

  #watchEvents(): void {
    const plugin = this.#plugin;
    if (plugin === null) return;
    this.#eventsTimer = null;
    const call = plugin.driver.taskEvents({
      onMessage: (event) => this.#options.onTaskEvent(event),
      onEnd: (error) => {
        if (this.#plugin !== plugin || !this.#streams.includes(call)) return;
        this.#streams = this.#streams.filter((one) => one !== call);
        const { clock, telemetry } = this.#ports;
        telemetry.log.debug({ plugin: this.name, error }, "a plugin's stream of events ended");
        this.#eventsTimer = clock.setTimeout(() => this.#watchEvents(), eventsRetryMs);
      },
    });
    this.#streams.push(call);
  }

  #checkHealth(timeoutMs: number): void {
    const plugin = this.#plugin;
    if (plugin === null) return; // its exit event follows
    void plugin.isAnswering(timeoutMs).then((isAnswering) => {
      if (this.#plugin === plugin) this.#send({ type: isAnswering ? "health.answered" : "health.missed" });
    });
  }

  #endStreams(): void {
    if (this.#eventsTimer !== null) this.#ports.clock.clearTimeout(this.#eventsTimer);
    this.#eventsTimer = null;
    for (const call of this.#streams.splice(0)) call.cancel();
  }

  async #endProcess(): Promise<void> {
    // A pending launch cannot be cancelled; its result is ended.
    const plugin = (await this.#launching) ?? this.#plugin;
    if (plugin !== null) {
      // The exit is intended, and only `process.ended` reports it.
      this.#plugin = null;
      await plugin.driver.shutdown().catch(() => {});
      await plugin.stop(stopGraceMs);
    }
    this.#record(null);
    await this.#writes;
    this.#send({ type: "process.ended" });
  }
}

/** Address of an earlier agent's plugin on the disk; null for anything that is not a record. */
export async function knownPlugin(disk: AgentDisk, name: string): Promise<PluginAddress | null> {
  const bytes = await disk.load(pluginRecords + name);
  if (bytes === null) return null;
  try {
    const record = JSON.parse(new TextDecoder().decode(bytes)) as Partial<PluginAddress>;
    const { network, address, pid, startTicks, logFile } = record;
    if (network !== "unix" && network !== "tcp") return null;
    if (typeof address !== "string" || typeof pid !== "number") return null;
    if (typeof startTicks !== "string" || typeof logFile !== "string") return null;
    return { network, address, pid, startTicks, logFile };
  } catch {
    return null;
  }
}
