/**
 * A client that reads the past during faults: the tasks and services at an earlier version, and the histories of services.
 *
 * S28: the state that a manager shows for a version equals the replicas' state at that version, whichever manager answers.
 * S29: a service's history lists its changes in the order in which they were written, each once, including its creation and
 *      its removal.
 */
import {
  ControlService,
  HistoryRequest,
  ListServicesRequest,
  ListServicesResponse,
  ListTasksRequest,
  ListTasksResponse,
  OperatorService,
  ReadAtRequest,
  Service,
  Task,
  type HistoryEntry,
} from "../../proto/gen/messages.ts";
import { RpcError } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { sha256, toHex } from "../../runtime/store/record.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import type { ClientOptions } from "./client.ts";

interface HistoryWorkloadOptions extends Omit<ClientOptions, "identity"> {
  /** The cluster's id; empty before there is one. */
  organization(): string;
  readonly looks: number;
  /** The operations are spread over this many milliseconds. */
  readonly withinMs: number;
  onViolation(claim: string): void;
}

/** Interval, in versions, between remembered states. */
const rememberedEvery = 5;
const callTimeoutMs = 20_000;

type Change = { readonly version: number; readonly action: string };

function digestOf(tasks: Iterable<Task>, services: Iterable<Service>): string {
  const parts = [
    ...[...tasks].toSorted((a, b) => (a.id < b.id ? -1 : 1)).map((task) => Task.encode(task)),
    ...[...services].toSorted((a, b) => (a.id < b.id ? -1 : 1)).map((service) => Service.encode(service)),
  ];
  return toHex(sha256(Buffer.concat(parts)));
}

export class HistoryWorkload {
  readonly #options: HistoryWorkloadOptions;
  readonly #random: SimRandom;
  readonly #digests = new Map<number, string>();
  readonly #changes = new Map<string, Change[]>();
  #seen = 0;
  #isExcused = false;

  constructor(options: HistoryWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.history");
  }

  start(): void {
    const { looks, ports, withinMs } = this.#options;
    for (let at = 0; at < looks; at += 1) {
      ports.clock.after(this.#random.between(2_000, withinMs), () => void this.#look());
    }
  }

  /** Called with each transaction, in order, and the state after it; several replicas report the same. */
  observe(commit: Commit, store: Store): void {
    if (commit.version !== this.#seen + 1 || this.#options.looks === 0) return;
    this.#seen = commit.version;
    if (commit.version % rememberedEvery === 0) {
      this.#digests.set(commit.version, digestOf(store.all("task"), store.all("service")));
    }
    for (const { table, action, object } of commit.changes) {
      if (table !== "service") continue;
      const known = this.#changes.get(object.id) ?? [];
      this.#changes.set(object.id, known);
      known.push({ version: commit.version, action });
    }
  }

  /** The log lost acknowledged records: versions are ambiguous. */
  excuse(): void {
    this.#isExcused = true;
  }

  async #look(): Promise<void> {
    const { addresses, organization, ports, trace } = this.#options;
    const identity = { nodeId: "historian", role: "swarm-manager", organization: organization() } as const;
    const channel = ports.rpc.dial(this.#random.pick(addresses), identity);
    const versions = [...this.#digests.keys()];
    const services = [...this.#changes.keys()];
    try {
      if (versions.length > 0 && this.#random.chance(0.6)) {
        const version = this.#random.pick(versions);
        const read = async (method: { readonly path: string }, request: Uint8Array): Promise<Uint8Array> => {
          const asked = ReadAtRequest.create({ version, method: method.path, request });
          return (await channel.unary(OperatorService.methods.ReadAt, asked, { timeoutMs: callTimeoutMs })).response;
        };
        const { ListServices, ListTasks } = ControlService.methods;
        const tasks = ListTasksResponse.decode(
          await read(ListTasks, ListTasksRequest.encode(ListTasksRequest.create())),
        );
        const request = ListServicesRequest.encode(ListServicesRequest.create());
        const found = ListServicesResponse.decode(await read(ListServices, request));
        this.#check(version, digestOf(tasks.tasks, found.services));
        trace.mark("history.read");
      } else if (services.length > 0) {
        const id = this.#random.pick(services);
        const until = this.#seen;
        const entries: HistoryEntry[] = [];
        const ended = Promise.withResolvers<RpcError | null>();
        channel.serverStream(OperatorService.methods.History, HistoryRequest.create({ kind: "service", subject: id }), {
          onMessage: (message) => void entries.push(...message.entries),
          onEnd: ended.resolve,
        });
        const error = await ended.promise;
        if (error !== null) throw error;
        this.#checkStory(id, until, entries);
        trace.mark("history.told");
      }
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      trace.write("history", `${error.code} ${error.message}`);
    } finally {
      channel.close();
    }
  }

  #check(version: number, digest: string): void {
    if (this.#isExcused || this.#digests.get(version) === digest) return;
    this.#options.onViolation(`S28: version ${version} was shown with a state that it never had`);
  }

  /** `until`: the newest version before the request; the answering manager may have lagged behind it. */
  #checkStory(id: string, until: number, entries: readonly HistoryEntry[]): void {
    if (this.#isExcused) return;
    const changes = this.#changes.get(id) ?? [];
    let last = 0;
    // One transaction may change a service and remove it, in this order.
    let next = 0;
    for (const { version, action } of entries) {
      if (action === "" || action === "before") continue;
      const at = changes.findIndex(
        (each, index) => index >= next && each.version === version && each.action === action,
      );
      const isKnown = version > until || at >= 0;
      if (!isKnown || version < last) {
        this.#options.onViolation(`S29: the history of service ${id} has ${action} at ${version} after ${last}`);
        return;
      }
      last = version;
      next = at < 0 ? next : at + 1;
    }
    const first = changes[0];
    const hasFirst = entries.some(({ version, action }) => version === first?.version && action === "create");
    if (entries.length > 0 && first !== undefined && !hasFirst) {
      this.#options.onViolation(`S29: the history of service ${id} lacks its creation`);
    }
  }
}
