/**
 * Hosts the dataplane driver of a node: passes it the results of the policy calculation, and keeps its reports.
 *
 * A1: while a driver does not read, changes are merged in the outbox, and nothing is queued.
 * A2: a report without its id or status is ignored: it crashes Felix, but not us.
 */
import {
  dataplaneDriverMachine,
  type DataplaneDriverEvent,
  type DataplaneDriverNews,
} from "../../machines/dataplane/dataplane-driver.machine.ts";
import { settingsOf, type Generation } from "../../machines/dataplane/generation.ts";
import { keyOf, type DataplaneDelta } from "../../machines/dataplane/objects.ts";
import { Outbox } from "../../machines/dataplane/outbox.ts";
import { ConfigUpdate, type FromDataplane } from "../../proto/gen/felix.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import type { DataplaneLauncher, DataplaneProcess } from "../../runtime/ports/dataplane.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { Clock, Gauge, Random, Telemetry } from "../../runtime/ports/index.ts";
import type { Owner } from "../../runtime/host.ts";

export interface DataplanePorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly host: Host;
  readonly launcher: DataplaneLauncher;
}

export interface DataplaneOptions {
  /** The driver's name, for people and for the actor's id. */
  readonly name: string;
  readonly generation: Generation;
  /** Raw settings, as Felix names them (docs/reference/felix-dataplane-protocol.md §9.3). */
  readonly settings: Readonly<Record<string, string>>;
  readonly onNews?: (news: DataplaneDriverNews) => void;
  /** Called when a driver first reports its start time. */
  readonly onSince?: () => void;
  /** Called with an endpoint's status; null: the driver has removed it. `key`: as written by `keyOf`. */
  readonly onStatus?: (key: string, status: string | null) => void;
}

/** Felix's grace period for a driver to exit by itself, in milliseconds. */
const endGraceMs = 4_000;

/** Maximum number of changes whose sending is awaited; beyond it, the earliest counts as sent. */
const awaitedMax = 100;

/** Maximum messages per turn: a large resync must not block other work of this process. */
const messagesPerTurn = 500;

export class DataplaneActor {
  readonly #ports: DataplanePorts;
  readonly #options: DataplaneOptions;
  readonly #actor: HostedActor<typeof dataplaneDriverMachine>;
  readonly #outbox: Outbox;
  readonly #statuses = new Map<string, string>();
  readonly #ended: (() => void)[] = [];
  /** Called when everything that waits has been sent. */
  readonly #awaiting: (() => void)[] = [];
  readonly #waiting: Gauge;
  #settings: Readonly<Record<string, string>>;
  #news: DataplaneDriverNews = { state: "wait-for-ready", reason: "" };
  #process: DataplaneProcess | null = null;
  #isFull = false;
  #isTelling = false;
  /** Reported start of its process, in milliseconds since the Unix epoch; null: not reported. */
  #since: number | null = null;

  constructor(ports: DataplanePorts, options: DataplaneOptions) {
    this.#ports = ports;
    this.#options = options;
    this.#settings = options.settings;
    this.#outbox = new Outbox(options.generation);
    this.#waiting = ports.telemetry.metrics.gauge(
      "muster_dataplane_waiting",
      "Messages that the dataplane driver has not read yet.",
    );
    this.#actor = ports.host.start(
      dataplaneDriverMachine,
      `dataplane-driver/${options.name}`,
      { name: options.name },
      this.#owner(),
    );
  }

  get news(): DataplaneDriverNews {
    return this.#news;
  }

  /** Endpoints' statuses by key, as last reported by the driver: `up`, `down`, `error` or another of its own. */
  get statuses(): ReadonlyMap<string, string> {
    return this.#statuses;
  }

  /** Reported start of its process, in milliseconds since the Unix epoch; null: not reported. */
  get since(): number | null {
    return this.#since;
  }

  /** Number of messages that the driver has not read. */
  get waiting(): number {
    return this.#outbox.size;
  }

  /** Changes the driver's state; before `ready`, changes are collected. */
  apply(delta: DataplaneDelta): void {
    this.#outbox.apply(delta);
    this.#tellSoon();
  }

  /** Calls once the driver has been sent everything that waits now, or has ended. */
  whenSent(listener: () => void): void {
    if (this.#awaiting.push(listener) > awaitedMax) this.#awaiting.shift()?.();
    this.#tellSoon();
  }

  /** To be called when the node's whole state has been applied: the driver may start. */
  ready(): void {
    this.#actor.send({ type: "state.ready" });
  }

  /** Restarts the driver if the settings have changed. */
  configure(settings: Readonly<Record<string, string>>): void {
    const names = Object.keys(settings);
    const isSame =
      names.length === Object.keys(this.#settings).length &&
      names.every((name) => settings[name] === this.#settings[name]);
    if (isSame) return;
    this.#settings = settings;
    this.#actor.send({ type: "settings.changed" });
  }

  /** Ends the driver; its rules stay in the kernel. Resolves when it has exited. */
  end(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#news.state === "stopped") {
        resolve();
        return;
      }
      this.#ended.push(resolve);
      this.#actor.send({ type: "driver.unwanted" });
    });
  }

  #owner(): Owner<typeof dataplaneDriverMachine> {
    return {
      effects: {
        launch: () => this.#launch(),
        endDriver: () => this.#process?.end(endGraceMs),
        forgetDriver: () => this.#forget(),
        announce: (news) => this.#announce(news),
      },
      draw: drawUpperHalf(this.#ports.random),
    };
  }

  #announce(news: DataplaneDriverNews): void {
    const { log } = this.#ports.telemetry;
    log[news.state === "restarting" ? "warn" : "info"](
      { driver: this.#options.name, state: news.state, reason: news.reason },
      "dataplane driver",
    );
    this.#news = news;
    this.#options.onNews?.(news);
    if (news.state !== "stopped") return;
    for (const listener of [...this.#awaiting.splice(0), ...this.#ended.splice(0)]) listener();
  }

  #launch(): void {
    const send = (event: DataplaneDriverEvent): void => {
      if (this.#process === process) this.#actor.send(event);
    };
    const process: DataplaneProcess = this.#ports.launcher.launch({
      onMessage: (message) => {
        if (this.#process === process) this.#heard(message);
      },
      onWritable: () => {
        if (this.#process !== process) return;
        this.#isFull = false;
        this.#tellSoon();
      },
      onBroken: (reason) => send({ type: "driver.broke", reason }),
      onExit: (how) => send({ type: "driver.exited", how }),
    });
    this.#process = process;
    const config = settingsOf(this.#settings, this.#options.generation);
    this.#isFull = !process.send({ configUpdate: ConfigUpdate.create({ config }) });
    this.#outbox.resync();
    this.#tellSoon();
  }

  #forget(): void {
    this.#process = null;
    this.#since = null;
    // Its reports are no longer valid.
    const keys = [...this.#statuses.keys()];
    this.#statuses.clear();
    for (const key of keys) this.#options.onStatus?.(key, null);
  }

  #tellSoon(): void {
    this.#waiting.set(this.#outbox.size);
    if (this.#isTelling || this.#isFull || this.#process === null) return;
    this.#isTelling = true;
    this.#ports.clock.soon(() => {
      this.#isTelling = false;
      this.#tell();
    });
  }

  #tell(): void {
    const process = this.#process;
    if (process === null || !this.#mayTell()) return;
    const wasInSync = this.#outbox.isInSync;
    for (let count = 0; !this.#isFull; count++) {
      if (count === messagesPerTurn) {
        this.#tellSoon();
        return;
      }
      const body = this.#outbox.next();
      if (body === null) {
        for (const listener of this.#awaiting.splice(0)) listener();
        break;
      }
      if (!process.send(body)) this.#isFull = true; // A1
    }
    this.#waiting.set(this.#outbox.size);
    if (!wasInSync && this.#outbox.isInSync) this.#actor.send({ type: "resync.sent" });
  }

  /** False while the driver is being ended. */
  #mayTell(): boolean {
    const snapshot = this.#actor.snapshot;
    return snapshot.matches("resync") || snapshot.hasTag("following");
  }

  #heard(message: FromDataplane): void {
    const { processStatusUpdate, workloadEndpointStatusUpdate, workloadEndpointStatusRemove } = message;
    const { hostEndpointStatusUpdate, hostEndpointStatusRemove } = message;
    if (processStatusUpdate !== null) {
      const isFirst = this.#since === null;
      this.#since ??= this.#ports.clock.now() - Math.max(0, processStatusUpdate.uptime) * 1_000;
      this.#actor.send({ type: "pulse.received" });
      if (isFirst) this.#options.onSince?.();
      return;
    }
    const workload = workloadEndpointStatusUpdate?.id ?? workloadEndpointStatusRemove?.id ?? null;
    const host = hostEndpointStatusUpdate?.id ?? hostEndpointStatusRemove?.id ?? null;
    const update = workloadEndpointStatusUpdate ?? hostEndpointStatusUpdate;
    const status = update?.status?.status ?? "";
    let key: string;
    if (workload !== null) key = keyOf({ kind: "workload", id: workload });
    else if (host !== null) key = keyOf({ kind: "host", id: host });
    else return this.#leaveOut(message);
    if (update !== null && status === "") return this.#leaveOut(message);
    if (update === null) this.#statuses.delete(key);
    else this.#statuses.set(key, status);
    this.#options.onStatus?.(key, update === null ? null : status);
  }

  /** A2. Also ignores messages of later generations. */
  #leaveOut({ sequenceNumber }: FromDataplane): void {
    this.#ports.telemetry.log.debug(
      { driver: this.#options.name, sequenceNumber },
      "ignored an unknown message of a dataplane driver",
    );
  }
}
