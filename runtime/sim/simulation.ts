/**
 * One simulated world: its time, randomness, trace, network and NATS, and its processes. A process is a name with a body
 * (`boot`) that runs with fresh ports at each start; only its disk survives in between.
 *
 * P1: after `crash`, nothing of that run of the process continues: no timer, no message, no answer.
 * P2: no two runs of a process share a random stream, so they never create the same id.
 */
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import type { Blobs, Bus, LeaseBucket, Log, Telemetry } from "../ports/index.ts";
import { SimClock, type ProcessClock } from "./clock.ts";
import { SimDisk } from "./disk.ts";
import { SimHandshakes } from "./handshakes.ts";
import { SimBlobs, SimLeases, SimLog } from "./log.ts";
import { SimNatsLink } from "./nats-link.ts";
import { SimNatsServer } from "./nats-server.ts";
import { SimNetwork, type Endpoint } from "./network.ts";
import { SimRandom } from "./random.ts";
import { RecordedLives } from "./recorded-lives.ts";
import { SimRpc, SimRpcNetwork } from "./rpc.ts";
import { SimSubjects, type SimNodeBus } from "./subjects.ts";
import { createSimTelemetry, type SimTelemetry } from "./telemetry.ts";
import { SimTrace } from "./trace.ts";

interface SimulationOptions {
  readonly seed: number | string;
  /** Keeps the lines of the trace, and writes more detail. */
  readonly keepTrace?: boolean;
  /** Keeps the finished spans. */
  readonly keepSpans?: boolean;
  /** Neither keeps nor hashes the trace. */
  readonly dropTrace?: boolean;
  /** Keeps log lines and spans of each life of a process in a ring of its own: at most so many bytes of all of them. */
  readonly ringsBytesMax?: number | null;
}

/** The ports of one run of a process. */
export interface SimPorts {
  readonly name: string;
  readonly clock: ProcessClock;
  readonly random: SimRandom;
  readonly telemetry: SimTelemetry & Telemetry;
  readonly disk: SimDisk;
  readonly rpc: SimRpc;
  /** Connected on first use; agents have none. */
  readonly bus: Bus;
  /** The NATS between nodes and managers, which has no log. */
  readonly nodeBus: SimNodeBus;
  /** For how long the oldest connection to its servers has waited for its handshake, in milliseconds; 0: none waits. */
  readonly handshakeWaitMs: () => number;
  readonly log: Log;
  readonly blobs: Blobs;
  leases(bucket: string, ttlMs: number): LeaseBucket;
  /** Ends this run as a broken invariant would; for `Host`'s `onCrash`. */
  fail(reason: string, error: unknown): void;
}

export interface SimProcessOptions {
  readonly skewMs?: number;
  readonly driftPpm?: number;
  /** `service.name` of its spans; default `muster-cli`. */
  readonly service?: string;
  /** Called when the process ended itself. Without it, the simulation fails with an error. */
  readonly onFail?: (reason: string, error: unknown) => void;
}

export class Simulation {
  readonly clock = new SimClock();
  readonly random: SimRandom;
  readonly trace: SimTrace;
  readonly network: SimNetwork;
  readonly nats: SimNatsServer;
  readonly rpc: SimRpcNetwork;
  /** The NATS between nodes and managers. */
  readonly subjects: SimSubjects;
  /** Finished spans of all processes, in the order of their ends; null: not kept. */
  readonly spans: ReadableSpan[] | null;
  /** Null: not kept. */
  readonly lives: RecordedLives | null;
  readonly #processes = new Map<string, SimProcess>();

  constructor(options: SimulationOptions) {
    this.random = new SimRandom(String(options.seed));
    this.spans = options.keepSpans === true ? [] : null;
    const { ringsBytesMax = null } = options;
    this.lives = ringsBytesMax === null ? null : new RecordedLives(() => this.clock.now(), ringsBytesMax);
    this.trace = new SimTrace(this.clock, {
      keepLines: options.keepTrace ?? false,
      dropLines: options.dropTrace ?? false,
    });
    this.network = new SimNetwork(this.clock, this.random.fork("network"), this.trace);
    this.nats = new SimNatsServer(this.network, this.random.fork("nats"));
    this.rpc = new SimRpcNetwork(this.network);
    this.subjects = new SimSubjects(this.network, this.random.fork("subjects"));
  }

  /** Adds a process; it runs after `start`. */
  process(name: string, boot: (ports: SimPorts) => void, options: SimProcessOptions = {}): SimProcess {
    const process = new SimProcess(this, name, boot, options);
    this.#processes.set(name, process);
    return process;
  }

  /** Whether a process, or the NATS server, has this name. */
  has(name: string): boolean {
    return this.#processes.has(name) || this.nats.name === name;
  }

  get processes(): Iterable<SimProcess> {
    return this.#processes.values();
  }

  /** The ports of a process that only runs a test's own code. */
  ports(name: string, options: SimProcessOptions = {}): SimPorts {
    let ports: SimPorts | null = null;
    this.process(name, (created) => (ports = created), options).start();
    return ports as unknown as SimPorts;
  }
}

export class SimProcess {
  readonly name: string;
  readonly disk: SimDisk;
  readonly #simulation: Simulation;
  readonly #boot: (ports: SimPorts) => void;
  readonly #options: SimProcessOptions;
  #endpoint: Endpoint | null = null;
  #lives = 0;
  /** Total adjustment of its machine's wall clock. */
  #jumpedMs = 0;
  #goneAt: number | null = null;

  constructor(simulation: Simulation, name: string, boot: (ports: SimPorts) => void, options: SimProcessOptions) {
    this.#simulation = simulation;
    this.name = name;
    this.disk = new SimDisk((mark) => simulation.trace.mark(mark));
    this.#boot = boot;
    this.#options = options;
  }

  get isRunning(): boolean {
    return this.#endpoint !== null;
  }

  get isPaused(): boolean {
    return this.#endpoint?.clock.isPaused === true;
  }

  /** When its machine was permanently removed, in milliseconds of virtual time; null if it was not. */
  get goneAt(): number | null {
    return this.#goneAt;
  }

  /** Number of starts. */
  get lives(): number {
    return this.#lives;
  }

  /** Does nothing while it runs, or if its machine is permanently gone. */
  start(): void {
    if (this.#endpoint !== null || this.#goneAt !== null) return;
    this.#lives += 1;
    const { clock, trace } = this.#simulation;
    const skewMs = (this.#options.skewMs ?? 0) + this.#jumpedMs;
    const own = clock.forProcess(skewMs, this.#options.driftPpm);
    const endpoint = { name: this.name, clock: own, handshakes: new SimHandshakes(own) };
    this.#endpoint = endpoint;
    trace.write(this.name, `start ${this.#lives}`);
    const ports = this.#ports(endpoint);
    endpoint.clock.onThrow = (error) => this.#fail(endpoint, "a callback", error);
    try {
      this.#boot(ports);
    } catch (error) {
      this.#fail(endpoint, "boot", error);
    }
  }

  /**
   * kill -9; with `losePower`, of the whole machine, which loses what its disk had not synced. `isSilent`: the machine sends no
   * last packet, and its peers notice by their keepalives.
   */
  crash(options: { readonly losePower?: boolean; readonly isSilent?: boolean } = {}): void {
    const endpoint = this.#endpoint;
    if (endpoint === null) return;
    this.#simulation.trace.write(this.name, "crash");
    this.#endpoint = null;
    if (options.isSilent === true) this.#simulation.network.fallSilent(endpoint);
    else this.#simulation.network.vanish(endpoint);
    endpoint.clock.kill();
    if (options.losePower === true) this.disk.loseUnsynced();
  }

  /** Its machine freezes permanently while its connections stay open: the process never runs again, and no peer is notified. */
  freeze(): void {
    const endpoint = this.#endpoint;
    if (endpoint === null) return;
    this.#simulation.trace.write(this.name, "freezes");
    this.#endpoint = null;
    endpoint.clock.kill();
    this.#goneAt ??= this.#simulation.clock.elapsed;
  }

  /** Its machine is destroyed: the process never starts again. */
  discard(): void {
    this.crash({ losePower: true });
    this.#goneAt ??= this.#simulation.clock.elapsed;
  }

  restart(): void {
    this.crash();
    this.start();
  }

  /** SIGSTOP, and SIGCONT after `ms` of true time: it resumes with its old state. */
  pause(ms: number): void {
    const endpoint = this.#endpoint;
    if (endpoint === null || endpoint.clock.isPaused) return;
    const { clock, network, trace } = this.#simulation;
    trace.write(this.name, `pause ${ms}ms`);
    endpoint.clock.pause();
    network.suspect(this.name, () => endpoint.clock.isPaused);
    clock.schedule(
      () => {
        if (!endpoint.clock.alive) return;
        trace.write(this.name, "resume");
        endpoint.clock.resume();
      },
      ms,
      null,
    );
  }

  /** Its machine is starved: each callback takes `costMs` in this run, until the next call; 0 turns this off. */
  slow(costMs: number): void {
    this.#simulation.trace.write(this.name, `slow ${costMs}ms`);
    this.#endpoint?.clock.slow(costMs);
  }

  /** Each handshake of its servers takes `costMs` in this run, until the next call; 0 turns this off. */
  slowHandshakes(costMs: number): void {
    this.#simulation.trace.write(this.name, `slow handshakes ${costMs}ms`);
    this.#endpoint?.handshakes?.slow(costMs);
  }

  /** Sets the wall clock of its machine forward by `ms` (back if negative). Survives the process. */
  jumpClock(ms: number): void {
    this.#simulation.trace.write(this.name, `clock jumps ${ms}ms`);
    this.#jumpedMs += ms;
    this.#endpoint?.clock.jump(ms);
  }

  /** Undoes all jumps of its machine's wall clock. */
  setClockRight(): void {
    if (this.#jumpedMs !== 0) this.jumpClock(-this.#jumpedMs);
  }

  #ports(endpoint: Endpoint): SimPorts {
    const { lives, network, nats, rpc, spans, subjects, trace } = this.#simulation;
    const random = this.#simulation.random.fork(`${this.name}.${this.#lives}`);
    const { clock } = endpoint;
    let link: SimNatsLink | null = null;
    const connect = () => (link ??= new SimNatsLink(network, nats, endpoint, random.fork("link")));
    let log: SimLog | null = null;
    let blobs: SimBlobs | null = null;
    const { service = "muster-cli" } = this.#options;
    const ring = lives === null ? null : lives.ring();
    const telemetry = createSimTelemetry({
      who: this.name,
      random: random.fork("telemetry"),
      trace,
      service,
      life: this.#lives,
      onSpan: spans === null ? null : (span) => spans.push(span),
      recorder: ring === null ? null : { ring, now: () => clock.now() },
    });
    if (ring !== null)
      lives?.add({ name: this.name, isManager: service === "muster-manager", clock, log: telemetry.log, ring });
    return {
      name: this.name,
      clock,
      random,
      telemetry,
      disk: this.disk,
      rpc: new SimRpc(rpc, endpoint, telemetry.log),
      get bus() {
        return connect();
      },
      handshakeWaitMs: () => endpoint.handshakes?.oldestMs() ?? 0,
      nodeBus: subjects.of(endpoint),
      get log() {
        return (log ??= new SimLog(connect(), clock, trace));
      },
      get blobs() {
        return (blobs ??= new SimBlobs(connect()));
      },
      leases: (bucket, ttlMs) => new SimLeases(connect(), bucket, ttlMs),
      fail: (reason, error) => this.#fail(endpoint, reason, error),
    };
  }

  #fail(endpoint: Endpoint, reason: string, error: unknown): void {
    if (this.#endpoint !== endpoint) return;
    const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    this.#simulation.trace.write(this.name, `failed ${reason} ${text}`);
    this.crash();
    if (this.#options.onFail === undefined)
      throw error instanceof Error ? error : new Error(`${this.name} failed in ${reason}: ${text}`);
    this.#options.onFail(reason, error);
  }
}
