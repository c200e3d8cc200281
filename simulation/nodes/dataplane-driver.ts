/**
 * A dataplane driver's process for simulated agents: reads at its own pace, has a pipe of limited size, and crashes, hangs or
 * writes garbage. A new process starts without any state.
 */
import type { Body } from "../../machines/dataplane/generation.ts";
import { keyOf } from "../../machines/dataplane/objects.ts";
import {
  EndpointStatus,
  FromDataplane,
  ProcessStatusUpdate,
  WorkloadEndpointStatusRemove,
  WorkloadEndpointStatusUpdate,
} from "../../proto/gen/felix.ts";
import type { DataplaneListener, DataplaneProcess } from "../../runtime/ports/dataplane.ts";
import type { ProcessClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { ModelDriver } from "./dataplane-model.ts";

/** Faults of drivers, while they are on. */
export interface DataplaneFaults {
  /** Probabilities that a process exits at once, or exits, hangs or writes garbage within `lifeMsMax`. */
  readonly fails: number;
  readonly dies: number;
  readonly hangs: number;
  readonly garbles: number;
  /** Maximum time to read one message, in milliseconds. */
  readonly readMsMax: number;
  /** Capacity of its pipe, in messages. */
  readonly room: number;
}

const lifeMsMax = 15_000;
/** Felix's interval between status reports. */
const reportMs = 10_000;
/** Messages read at once when it is not slow. */
const batch = 50;
/** Maximum time that a process takes to exit when requested, in milliseconds. */
const endMsMax = 500;

let pids = 0;

export class SimDataplaneDriver implements DataplaneProcess {
  readonly pid = (pids += 1);
  readonly model = new ModelDriver();
  readonly #clock: ProcessClock;
  readonly #random: SimRandom;
  readonly #faults: () => DataplaneFaults;
  readonly #listener: DataplaneListener;
  readonly #onRead: (driver: SimDataplaneDriver) => void;
  readonly #pipe: Body[] = [];
  /** Keys of the endpoints that it has reported as up. */
  readonly #up = new Set<string>();
  #isFull = false;
  #isReading = false;
  #isHung = false;
  #isAlive = true;

  constructor(options: {
    readonly clock: ProcessClock;
    readonly random: SimRandom;
    readonly faults: () => DataplaneFaults;
    readonly listener: DataplaneListener;
    /** It has read a message. */
    readonly onRead: (driver: SimDataplaneDriver) => void;
  }) {
    this.#clock = options.clock;
    this.#random = options.random;
    this.#faults = options.faults;
    this.#listener = options.listener;
    this.#onRead = options.onRead;
    const { dies, fails, garbles, hangs } = this.#faults();
    const within = (chance: number, ms: number, act: () => void): void => {
      if (this.#random.chance(chance)) this.#clock.after(this.#random.between(0, ms), act);
    };
    within(fails, 0, () => this.#die("exit status 1"));
    within(dies, lifeMsMax, () => this.#die("signal SIGKILL"));
    within(hangs, lifeMsMax, () => (this.#isHung = true));
    within(
      garbles,
      lifeMsMax,
      () => this.#isAlive && this.#listener.onBroken("cannot read its messages: frame of 2^40 bytes"),
    );
  }

  /** Number of messages in its pipe. */
  get unread(): number {
    return this.#pipe.length;
  }

  send(body: Body): boolean {
    if (!this.#isAlive) return false;
    this.#pipe.push(body);
    this.#isFull = this.#pipe.length >= this.#faults().room;
    this.#readOn();
    return !this.#isFull;
  }

  end(graceMs: number): void {
    const ms = this.#isHung ? graceMs : this.#random.between(0, Math.min(graceMs, endMsMax));
    this.#clock.after(ms, () => this.#die("requested"));
  }

  /** Resumes a process that hangs. */
  wake(): void {
    this.#isHung = false;
    this.#readOn();
    if (this.model.inSyncs > 0) this.#report();
  }

  #die(how: string): void {
    if (!this.#isAlive) return;
    this.#isAlive = false;
    this.#listener.onExit(how);
  }

  #readOn(): void {
    if (this.#isReading || this.#pipe.length === 0) return;
    this.#isReading = true;
    const { readMsMax } = this.#faults();
    const ms = readMsMax === 0 ? 1 : this.#random.between(1, readMsMax);
    this.#clock.after(ms, () => {
      this.#isReading = false;
      if (!this.#isAlive || this.#isHung) return;
      for (let left = readMsMax === 0 ? batch : 1; left > 0; left -= 1) {
        const body = this.#pipe.shift();
        if (body !== undefined) this.#read(body);
      }
      if (this.#isFull && this.#pipe.length < this.#faults().room) {
        this.#isFull = false;
        this.#listener.onWritable();
      }
      this.#readOn();
    });
  }

  #read(body: Body): void {
    this.model.take(body);
    this.#onRead(this);
    if (body.inSync) this.#reportAgain();
    const { workloadEndpointRemove, workloadEndpointUpdate } = body;
    if (workloadEndpointUpdate?.id) {
      const { id } = workloadEndpointUpdate;
      this.#up.add(keyOf({ kind: "workload", id }));
      const status = EndpointStatus.create({ status: "up" });
      this.#say({ workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({ id, status }) });
    }
    if (workloadEndpointRemove?.id) {
      const { id } = workloadEndpointRemove;
      if (!this.#up.delete(keyOf({ kind: "workload", id }))) return;
      this.#say({ workloadEndpointStatusRemove: WorkloadEndpointStatusRemove.create({ id }) });
    }
  }

  #reportAgain(): void {
    if (!this.#isAlive) return;
    this.#report();
    this.#clock.after(reportMs, () => this.#reportAgain());
  }

  #report(): void {
    if (!this.#isHung) this.#say({ processStatusUpdate: ProcessStatusUpdate.create({}) });
  }

  #say(message: Partial<FromDataplane>): void {
    if (this.#isAlive) this.#listener.onMessage(FromDataplane.create(message));
  }
}
