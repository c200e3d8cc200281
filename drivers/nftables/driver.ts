/**
 * The dataplane driver: receives main's messages, applies transactions, and reports statuses.
 *
 *   waiting ──config──▶ resync ──in sync──▶ in-sync
 *
 * D1: before InSync the kernel is not changed, and an earlier driver's rules stay in force. Then one transaction replaces
 *     everything.
 * D2: one transaction runs at a time; messages that arrive meanwhile go into the next one.
 * D3: a failed transaction is retried, first as a full rewrite, then with growing delays. Until then the kernel keeps the last
 *     applied state, in which every endpoint that it lacks is closed.
 */
import type { FromDataplane, ToDataplane } from "../../proto/gen/felix.ts";
import { ProcessStatusUpdate } from "../../proto/gen/felix.ts";
import { readSettings, type Settings } from "./config.ts";
import { Desired, workloadKey, type Host, type Workload } from "./desired.ts";
import { anyInterface } from "./endpoint.ts";
import { Interfaces } from "./interfaces.ts";
import type { Kernel } from "./kernel.ts";
import { isInterfaceName } from "./names.ts";
import { Ruleset } from "./ruleset.ts";
import { Statuses, type Status } from "./statuses.ts";
import { type Backoff, backoffMs } from "../../lib/backoff.ts";

interface DriverOptions {
  readonly kernel: Kernel;
  /** `isDroppable`: may be dropped while main does not read. */
  readonly send: (fields: Partial<FromDataplane>, isDroppable?: boolean) => void;
  /** Logs a line for the operator. */
  readonly log: (text: string) => void;
}

/** Maximum number of messages kept before main's settings arrive: Felix's race concerns a few. */
const earlyMessagesMax = 100_000;
/** Maximum number of different problems logged by one driver; after that only statuses report them. */
const complaintsMax = 1_000;
/** After a failed transaction. D3 */
const retryBackoff: Backoff = { stepMs: 1_000, msMax: 30_000 };

interface Working {
  readonly settings: Settings;
  readonly desired: Desired;
  readonly ruleset: Ruleset;
  readonly interfaces: Interfaces;
  isInSync: boolean;
}

export class Driver {
  readonly #options: DriverOptions;
  readonly #statuses: Statuses;
  readonly #startedAt = performance.now();
  readonly #early: ToDataplane[] = [];
  readonly #timers = new Set<NodeJS.Timeout>();
  #working: Working | null = null;
  /** Endpoints that main has changed since the last transaction. */
  readonly #touched = new Map<string, Workload>();
  readonly #touchedHosts = new Map<string, Host>();
  readonly #complaints = new Set<string>();
  #running: Promise<void> | null = null;
  #isScheduled = false;
  #isProgrammed = true;
  #failures = 0;
  #isStopped = false;

  constructor(options: DriverOptions) {
    this.#options = options;
    this.#statuses = new Statuses((fields) => options.send(fields));
  }

  take(messages: readonly ToDataplane[]): void {
    for (const message of messages) this.#takeOne(message);
    this.#schedule();
  }

  /** Resolves when the current transaction has ended; the kernel keeps its state. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#working?.interfaces.stop();
    await this.#running;
  }

  #takeOne(message: ToDataplane): void {
    const working = this.#working;
    if (working === null) {
      if (message.configUpdate !== null) this.#configure(message.configUpdate.config);
      else if (this.#early.push(message) > earlyMessagesMax)
        throw new Error(`main sent ${earlyMessagesMax} messages without settings`);
      return;
    }
    if (message.configUpdate !== null) {
      // Felix sends some that change nothing here; to apply others, it starts another driver.
      this.#options.log("ignoring further settings");
    } else if (message.inSync !== null) {
      this.#beginSync(working);
    } else {
      this.#touch(working.desired, message);
      working.desired.take(message);
      if (message.hostEndpointUpdate !== null || message.hostEndpointRemove !== null) this.#resolveHosts(working);
    }
  }

  #configure(config: Readonly<Record<string, string>>): void {
    const { settings, problems } = readSettings(config);
    for (const problem of problems) this.#options.log(problem);
    const desired = new Desired(settings);
    const interfaces = new Interfaces({
      pollMs: settings.interfacePollMs,
      onLink: (name) => this.#linkChanged(name),
      onAddresses: () => this.#addressesChanged(),
      onProblem: (text) => this.#options.log(text),
    });
    this.#working = { settings, desired, ruleset: new Ruleset(desired), interfaces, isInSync: false };
    if (settings.reportingMs > 0) this.#heartbeat(settings.reportingMs / 2);
    for (const message of this.#early.splice(0)) this.#takeOne(message);
  }

  #beginSync(working: Working): void {
    if (working.isInSync) return;
    // The first transaction waits for the interfaces, which decide where each host endpoint is.
    void working.interfaces.start().then(() => {
      working.isInSync = true;
      this.#resolveHosts(working);
      this.#refresh(working);
      this.#schedule();
    });
  }

  #touch(desired: Desired, message: ToDataplane): void {
    const id = message.workloadEndpointUpdate?.id ?? message.workloadEndpointRemove?.id ?? null;
    if (id !== null) {
      const key = workloadKey(id);
      const before = desired.workloads.get(key);
      const endpoint = message.workloadEndpointUpdate?.endpoint ?? before?.endpoint ?? null;
      if (endpoint !== null) this.#touched.set(key, { id, endpoint });
      // Other workloads that name the interface may now get it, or lose it.
      for (const name of [before?.endpoint.name, endpoint?.name]) {
        const owner = name === undefined ? null : desired.workloadAt(name);
        if (owner !== null) this.#touched.set(workloadKey(owner.id), owner);
      }
    }
    const hostId = message.hostEndpointRemove?.id ?? null;
    const host = hostId === null ? undefined : desired.hosts.get(hostId.endpointId);
    if (host !== undefined) this.#touchedHosts.set(host.id.endpointId, host);
  }

  #schedule(): void {
    if (this.#isScheduled || this.#running !== null || this.#working?.isInSync !== true || this.#isStopped) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      const working = this.#working;
      if (working === null || this.#running !== null || this.#isStopped) return;
      this.#running = this.#program(working).finally(() => {
        this.#running = null;
        if (working.ruleset.isNeeded && this.#failures === 0) this.#schedule();
      });
    });
  }

  async #program(working: Working): Promise<void> {
    const { ruleset, desired } = working;
    const found = ruleset.isWholeNeeded ? await this.#options.kernel.contents() : null;
    const touched = [...this.#touched];
    this.#touched.clear();
    const transaction = ruleset.next(found);
    if (transaction !== null) {
      let outcome = await this.#options.kernel.apply(transaction.script);
      if (outcome.kind === "failed" && transaction.restsOnKernel) {
        this.#options.log(`a transaction failed, rewriting everything: ${outcome.reason}`);
        ruleset.distrust();
        const whole = ruleset.next(null);
        if (whole !== null) outcome = await this.#options.kernel.apply(whole.script);
      }
      const was = this.#isProgrammed;
      this.#isProgrammed = outcome.kind === "done";
      this.#tellHosts(working);
      if (outcome.kind === "failed") {
        ruleset.distrust();
        this.#failures += 1;
        const waitMs = backoffMs(retryBackoff, this.#failures);
        this.#options.log(`cannot program the rules, retrying in ${waitMs / 1_000} s: ${outcome.reason}`);
        this.#after(waitMs, () => {
          this.#failures = Math.max(1, this.#failures);
          this.#retry();
        });
      } else {
        this.#failures = 0;
      }
      if (was !== this.#isProgrammed || transaction.isWhole) {
        for (const workload of desired.workloads.values()) this.#tellWorkload(working, workload);
      }
      for (const name of transaction.workloads) {
        const owner = desired.workloadAt(name);
        if (owner !== null) this.#tellWorkload(working, owner);
      }
    }
    if (transaction === null) this.#tellHosts(working);
    for (const [key, workload] of touched) this.#tellWorkload(working, desired.workloads.get(key) ?? workload);
  }

  #retry(): void {
    const working = this.#working;
    if (working === null || this.#running !== null || this.#isStopped) return;
    this.#running = this.#program(working).finally(() => {
      this.#running = null;
      if (this.#failures === 0) this.#schedule();
    });
  }

  #tellWorkload(working: Working, workload: Workload): void {
    const key = workloadKey(workload.id);
    const known = working.desired.workloads.get(key);
    const status = known === undefined ? null : this.#workloadStatus(working, known);
    const { id, endpoint } = known ?? workload;
    this.#statuses.tell({ kind: "workload", key, id, endpoint }, status);
  }

  #workloadStatus({ desired, ruleset, interfaces }: Working, workload: Workload): Status {
    const { name, state } = workload.endpoint;
    if (!isInterfaceName(name) || desired.workloadAt(name)?.id !== workload.id) return "error";
    if (!interfaces.isUp(name)) return "down";
    const problem = ruleset.problemAt({ kind: "workload", key: name });
    if (problem !== null) this.#complain(problem);
    if (!this.#isProgrammed || problem !== null) return "error";
    return state === "active" ? "up" : "down";
  }

  #tellHosts(working: Working): void {
    const { desired, interfaces, ruleset } = working;
    for (const [key, host] of this.#touchedHosts)
      if (!desired.hosts.has(key)) this.#statuses.tell({ kind: "host", key, id: host.id }, null);
    this.#touchedHosts.clear();
    const hostsAt = this.#hostsAt(working);
    const places = new Map([...hostsAt].map(([name, id]) => [id, name]));
    const problem = ruleset.problemAt({ kind: "hosts", key: "" });
    if (problem !== null) this.#complain(problem);
    const isWrong = !this.#isProgrammed || problem !== null;
    for (const [key, host] of desired.hosts) {
      const name = places.get(key);
      let status: Status = "up";
      if (name === undefined) status = "error";
      else if (name !== anyInterface && !interfaces.isUp(name)) status = "down";
      else if (isWrong) status = "error";
      this.#statuses.tell({ kind: "host", key, id: host.id }, status);
    }
  }

  /** Logs each reason for endpoints with status `error` once, however many endpoints it affects. */
  #complain(problem: string): void {
    if (this.#complaints.size >= complaintsMax || this.#complaints.has(problem)) return;
    this.#complaints.add(problem);
    this.#options.log(`endpoints have status error and drop packets that they cannot decide about: ${problem}`);
  }

  /** The host endpoint of each interface: by name, otherwise by address; of two for one interface, the smaller id. */
  #hostsAt({ desired, interfaces }: Working): ReadonlyMap<string, string> {
    const hostsAt = new Map<string, string>();
    for (const [id, { endpoint }] of [...desired.hosts].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      const expected = [...endpoint.expectedIpv4Addrs, ...endpoint.expectedIpv6Addrs];
      const name = endpoint.name === "" ? interfaces.withAddress(expected) : endpoint.name;
      if (name === null || (name !== anyInterface && !isInterfaceName(name)) || hostsAt.has(name)) continue;
      hostsAt.set(name, id);
    }
    return hostsAt;
  }

  #resolveHosts(working: Working): void {
    working.ruleset.resolveHosts(this.#hostsAt(working));
  }

  #linkChanged(name: string): void {
    const working = this.#working;
    if (working?.isInSync !== true) return;
    const owner = working.desired.workloadAt(name);
    if (owner !== null && !this.#touched.has(workloadKey(owner.id))) this.#tellWorkload(working, owner);
    this.#tellHosts(working);
  }

  #addressesChanged(): void {
    const working = this.#working;
    if (working?.isInSync !== true) return;
    if (![...working.desired.hosts.values()].some(({ endpoint }) => endpoint.name === "")) return;
    this.#resolveHosts(working);
    this.#schedule();
  }

  /** Checks periodically whether another program has changed our table. */
  #refresh(working: Working): void {
    if (working.settings.refreshMs === 0) return;
    this.#after(working.settings.refreshMs, () => {
      void this.#compare(working).finally(() => {
        if (!this.#isStopped) this.#refresh(working);
      });
    });
  }

  async #compare(working: Working): Promise<void> {
    if (this.#running !== null || this.#failures > 0 || working.ruleset.isNeeded) return;
    const expected = working.ruleset.expectedRules();
    const found = (await this.#options.kernel.contents())?.chains ?? null;
    // After a transaction of our own in between, the two cannot be compared.
    if (found === null || this.#running !== null || working.ruleset.isNeeded) return;
    if (found.size === expected.size && [...expected].every(([name, count]) => found.get(name)?.rules === count))
      return;
    this.#options.log("another program changed the rules, rewriting everything");
    working.ruleset.distrust();
    this.#schedule();
  }

  /** With up to a tenth of jitter, so that nodes do not report at the same time. */
  #heartbeat(inMs: number): void {
    this.#after(inMs * (1 + Math.random() / 10), () => {
      const isoTimestamp = new Date().toISOString().replace(/\.\d+Z$/, "Z");
      const uptime = (performance.now() - this.#startedAt) / 1_000;
      this.#options.send({ processStatusUpdate: ProcessStatusUpdate.create({ isoTimestamp, uptime }) }, true);
      this.#heartbeat(this.#working?.settings.reportingMs ?? inMs);
    });
  }

  #after(ms: number, action: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      action();
    }, ms);
    this.#timers.add(timer);
  }
}
