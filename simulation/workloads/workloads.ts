/** All clients of a simulated cluster, one line each. */
import { isManagersNode } from "../../machines/manager/role.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import { type Acknowledged, Workload } from "./basic.ts";
import { Answers } from "../invariants/answers.ts";
import type { Wait } from "../invariants/budgets.ts";
import { addressOf, type SimManagers } from "../managers/managers.ts";
import type { Scene } from "../scene.ts";
import { CertificateWorkload } from "./certificates.ts";
import { ContentionWorkload } from "./contention.ts";
import { DriverWorkload } from "./drivers.ts";
import { GlobalWorkload } from "./global.ts";
import { HealthWorkload } from "./health.ts";
import { HistoryWorkload } from "./history.ts";
import { JsonWorkload } from "./json.ts";
import { Intruder, joinTokensIn } from "../faults/intruder.ts";
import { JobWorkload } from "./jobs.ts";
import { LockWorkload } from "./locks.ts";
import { LogWorkload } from "./logs.ts";
import { NetworkWorkload } from "./networks.ts";
import { PlacementWorkload } from "./placement.ts";
import { PolicyWorkload } from "./policies.ts";
import { RebalanceWorkload } from "./rebalance.ts";
import { RoleWorkload } from "./roles.ts";
import { RolloutWorkload } from "./rollout.ts";
import { VolumeWorkload } from "./volumes.ts";
import { WatchWorkload } from "./watch.ts";
import { Writer } from "./writer.ts";

interface Client {
  readonly isDone: boolean;
  start(): void;
}

export class Workloads {
  readonly #scene: Scene;
  readonly #managers: SimManagers;
  readonly #watches: WatchWorkload;
  readonly #history: HistoryWorkload;
  readonly #json: JsonWorkload;
  readonly #answers: Answers;
  readonly #clients: { readonly who: string; readonly client: Client }[] = [];
  readonly #tokens = new Set<string>();
  #services: Workload | null = null;
  #logs: LogWorkload | null = null;
  #roles: RoleWorkload | null = null;

  /** Observers of the log must exist before its first record. */
  constructor(scene: Scene, managers: SimManagers) {
    this.#scene = scene;
    this.#managers = managers;
    const { options, simulation } = scene;
    // After a lost tail, acknowledged changes are missing, and versions are ambiguous.
    const answers = new Answers((claim) => {
      if (!scene.isTailLost) scene.fail(claim);
    });
    this.#answers = answers;
    const { faultsMs: withinMs, looksBack: looks, watchers } = options;
    const follower = (name: string) => ({
      ports: simulation.ports(name),
      trace: simulation.trace,
      answers,
      addresses: Array.from({ length: options.managers }, (_, at) => addressOf(`m${at + 1}`)),
      organization: () => managers.organization(),
      withinMs,
      onViolation: (claim: string) => scene.fail(claim),
    });
    this.#watches = new WatchWorkload({ ...follower("watcher"), watchers });
    this.#history = new HistoryWorkload({ ...follower("history"), looks });
    // The client that adds users; the JSON API's clients log in themselves.
    const identity = { nodeId: "operator", role: "swarm-manager", organization: "" } as const;
    this.#json = new JsonWorkload({ ...follower("json"), identity, clients: options.jsonClients });
  }

  /** Acknowledged writes. */
  get writes(): readonly Acknowledged[] {
    return this.#services?.writes ?? [];
  }

  /** Ids of services whose removal was acknowledged. */
  get removed(): ReadonlySet<string> {
    return this.#services?.removed ?? new Set();
  }

  start(): void {
    const { options, simulation } = this.#scene;
    const access = {
      ports: simulation.ports("client"),
      trace: simulation.trace,
      answers: this.#answers,
      addresses: this.#managers.all.map(({ address }) => address),
      identity: { nodeId: "client", role: "swarm-manager", organization: this.#managers.organization() },
      withinMs: options.faultsMs,
    } as const;
    const of = (operations: number) => ({ ...access, operations });
    this.#services = this.#add("the client", new Workload(of(options.operations)));
    this.#add("the client", new GlobalWorkload({ ...of(options.globalOperations), spared: "a1" }));
    this.#add("the client of jobs", new JobWorkload(of(options.jobOperations)));
    this.#add("the client of networks", new NetworkWorkload(of(options.networkOperations)));
    this.#add("the client of rollouts", new RolloutWorkload(of(options.rolloutOperations)));
    this.#add("the client of choosy services", new PlacementWorkload(of(options.placementOperations)));
    this.#watches.start();
    this.#history.start();
    this.#json.start();
    const onWrong = (claim: string) => this.#scene.fail(claim);
    this.#logs = new LogWorkload({ ...of(options.logOperations), onWrong });
    this.#logs.start();
    this.#add("the operator of certificates", new CertificateWorkload(of(options.certificateOperations)));
    this.#add("the operator of locks", new LockWorkload(of(options.lockOperations)));
    if (options.roleOperations > 0) this.#intrude(access.addresses);
    this.#roles = this.#add("the operator of roles", new RoleWorkload(of(options.roleOperations)));
    this.#add("the client of volumes", new VolumeWorkload(of(options.volumeOperations)));
    this.#add("the client of network policy", new PolicyWorkload(of(options.policyOperations)));
    this.#add("the client of driver plugins", new DriverWorkload(of(options.driverOperations)));
    this.#add("the client of health checks", new HealthWorkload(of(options.healthOperations)));
    this.#add("the clients in contention", new ContentionWorkload(of(options.contentionOperations)));
    // The first operation turns rebalancing on.
    if (options.rebalanceOperations > 0)
      this.#add("the client of rebalancing", new RebalanceWorkload(of(options.rebalanceOperations)));
  }

  /** Adds the intruder, with the certificates of all managers. */
  #intrude(addresses: readonly string[]): void {
    const { simulation } = this.#scene;
    new Intruder({
      ports: simulation.ports("intruder"),
      trace: simulation.trace,
      addresses,
      identities: () => {
        const organization = this.#managers.organization();
        const store = this.#managers.all.find(({ running }) => running !== null)?.running?.store;
        return [...(store?.all("node") ?? [])]
          .filter(isManagersNode)
          .map(({ id }) => ({ nodeId: id, role: "swarm-manager", organization }));
      },
      tokens: () => [...this.#tokens],
      onWrong: (claim) => this.#scene.fail(claim),
    }).start();
  }

  /** Adds a client that writes small objects one after the other for this many milliseconds. */
  write(withinMs: number): Client {
    const { simulation } = this.#scene;
    return this.#add(
      "the writer",
      new Writer({
        ports: simulation.ports("writer"),
        trace: simulation.trace,
        answers: this.#answers,
        addresses: this.#managers.all.map(({ address }) => address),
        identity: { nodeId: "writer", role: "swarm-manager", organization: this.#managers.organization() },
        withinMs,
      }),
    );
  }

  /** Promotes all demoted managers, after all other operations. */
  restoreRoles(): void {
    this.#roles?.restore();
  }

  /** Called with each transaction, in order; several replicas apply the same. */
  observe(commit: Commit, store: Store): void {
    for (const token of joinTokensIn(commit)) this.#tokens.add(token);
    this.#answers.observe(commit);
    this.#watches.observe(commit);
    this.#history.observe(commit, store);
  }

  /** The log lost all records after version `kept`. */
  excuseAfter(kept: number): void {
    this.#services?.excuseAfter(kept);
    this.#watches.excuse();
    this.#history.excuse();
  }

  /** A client that has not finished; null if all have. */
  whyOpen(): string | null {
    for (const { client, who } of this.#clients) if (!client.isDone) return `${who} is not done`;
    if (this.#logs?.isDone === false) return `O3: a subscription to output does not end: ${this.#logs.whyOpen()}`;
    return this.#watches.whyBehind();
  }

  /** Subscriptions to output that should end, and watchers that are behind. */
  *waits(): Generator<Wait> {
    if (this.#logs?.isDone === false)
      yield { kind: "subscription", what: `a subscription to output does not end: ${this.#logs.whyOpen()}` };
    const behind = this.#watches.whyBehind();
    if (behind !== null) yield { kind: "watcher", what: behind };
  }

  /** A client of the JSON API with an outdated view; null if there is none. */
  whyUnseen(): string | null {
    return this.#json.whyBehind(
      this.#managers.serving.flatMap(({ address, running }) =>
        running === null ? [] : [{ address, store: running.store, open: running.jsonConnections() }],
      ),
    );
  }

  #add<Added extends Client>(who: string, client: Added): Added {
    client.start();
    this.#clients.push({ who, client });
    return client;
  }
}
