/**
 * The dataplanes of simulated nodes: the real main side, and for each node a driver that records its state and checks that a
 * driver could follow every update.
 *
 * S40: no update from a manager refers to something missing: a rule without its set, an endpoint without its policy, or a
 *      member that was already added or removed.
 * S43: no driver learns of an endpoint before its policies and profiles, or of a rule before its sets, so that no driver
 *      must guess and open; and no process is told to remove something that it was not told to add.
 * S44: the queue for a driver, however slow, is never longer than the number of objects that it has or will have.
 */
import { driveDataplane } from "../../actors/agent/node-dataplane.ts";
import type { NodeDataplane } from "../../actors/agent/policy-follower.ts";
import { updateOf, type Generation } from "../../machines/dataplane/generation.ts";
import { deltasOf } from "../../machines/policy/felix.ts";
import { applyUpdate, emptyState, policyKey, wholeState, type NodeState } from "../../machines/policy/node-state.ts";
import type { DataplaneRule, DataplaneUpdate } from "../../proto/gen/messages.ts";
import type { DataplaneListener, DataplaneProcess } from "../../runtime/ports/dataplane.ts";
import type { Host } from "../../runtime/host.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { ModelDriver } from "./dataplane-model.ts";
import { SimDataplaneDriver, type DataplaneFaults } from "./dataplane-driver.ts";

const noFaults: DataplaneFaults = { fails: 0, dies: 0, hangs: 0, garbles: 0, readMsMax: 0, room: 1_000 };

interface Dataplane {
  readonly generation: Generation;
  /** The node's state as sent to the agent in its current life; null before the first update. */
  told: NodeState | null;
  /** The latest process of its driver. */
  driver: SimDataplaneDriver | null;
}

export class SimDataplanes {
  readonly #dataplanes = new Map<string, Dataplane>();
  readonly #trace: SimTrace;
  readonly #onWrong: (claim: string) => void;
  #faults: DataplaneFaults;

  constructor(trace: SimTrace, faults: DataplaneFaults, onWrong: (claim: string) => void) {
    this.#trace = trace;
    this.#faults = faults;
    this.#onWrong = onWrong;
  }

  heal(): void {
    this.#faults = noFaults;
    for (const { driver } of this.#dataplanes.values()) driver?.wake();
  }

  isServing(name: string): boolean {
    return this.#dataplanes.has(name);
  }

  /** The node's state as sent in its agent's current life; null before the first update. */
  stateOf(name: string): NodeState | null {
    return this.#dataplanes.get(name)?.told ?? null;
  }

  /** How the driver's state differs from `wanted`; null if equal. */
  differenceOf(name: string, wanted: NodeState): string | null {
    const { driver, generation } = this.#dataplanes.get(name) as Dataplane;
    if (driver === null) return "it has no process";
    if (driver.model.inSyncs === 0) return "it is not in sync";
    const expected = new ModelDriver();
    for (const delta of deltasOf(wholeState(wanted))) {
      const body = delta.kind === "put" ? updateOf(delta.object, generation) : null;
      if (body !== null) expected.take(body);
    }
    const [has, is] = [driver.model, expected].map((each) => JSON.stringify(each.picture())) as [string, string];
    return has === is ? null : `it has ${has.slice(0, 300)} and should have ${is.slice(0, 300)}`;
  }

  /** One life of an agent, which starts without state and without a driver. */
  boot(ports: SimPorts, host: Host): NodeDataplane {
    const { name, random, telemetry } = ports;
    const generation = this.#dataplanes.get(name)?.generation ?? random.pick<Generation>(["2016", "current"]);
    const dataplane: Dataplane = { generation, told: null, driver: null };
    this.#dataplanes.set(name, dataplane);
    const check = (): void => this.#check(name, dataplane, telemetry.reading("muster_dataplane_waiting"));
    const driven = driveDataplane(
      {
        ...ports,
        host,
        random: random.fork("dataplane"),
        launcher: { launch: (listener) => this.#launch(ports, dataplane, listener, check) },
      },
      { generation, name, settings: {} },
    );
    return {
      take: (change, traceparent) => {
        this.#take(name, dataplane, change);
        driven.take(change, traceparent);
        check();
      },
      onReport: (listener) => driven.onReport(listener),
    };
  }

  #launch(
    { clock, name, random }: SimPorts,
    dataplane: Dataplane,
    listener: DataplaneListener,
    onRead: () => void,
  ): DataplaneProcess {
    this.#trace.mark("dataplane.launched");
    const driver = new SimDataplaneDriver({
      clock,
      random: random.fork(`dataplane.${name}.${clock.now()}`),
      faults: () => this.#faults,
      listener,
      onRead,
    });
    dataplane.driver = driver;
    return driver;
  }

  /** S43, S44 */
  #check(name: string, { driver, told }: Dataplane, waiting: number): void {
    const [has, is] = [driver === null ? 0 : driver.model.size + driver.unread, told === null ? 0 : sizeOf(told)];
    if (waiting > has + is)
      this.#onWrong(
        `S44: ${waiting} messages wait for the driver of ${name}, which has ${has} objects and should have ${is}`,
      );
    if (driver === null) return;
    const wrong = driver.model.problems[0] ?? driver.model.findDangling();
    if (wrong !== null) this.#onWrong(`S43: the driver of ${name}: ${wrong}`);
  }

  /** S40 */
  #take(name: string, dataplane: Dataplane, change: DataplaneUpdate): void {
    const state = change.fresh ? emptyState() : dataplane.told;
    if (state === null) return this.#onWrong(`S40: ${name} got an update before its initial state`);
    const objection = inexact(state, change);
    applyUpdate(state, change);
    dataplane.told = state;
    const wrong = objection ?? dangling(state);
    if (wrong !== null) this.#onWrong(`S40: ${name}: ${wrong}`);
    if (!change.fresh) this.#trace.mark("policy.step");
    if (change.setDeltas.length > 0) this.#trace.mark("policy.members");
    return undefined;
  }
}

function sizeOf({ endpoints, hostEndpoints, hosts, policies, profiles, sets }: NodeState): number {
  return [endpoints, hostEndpoints, hosts, policies, profiles, sets].reduce((sum, { size }) => sum + size, 0);
}

function inexact(state: NodeState, { setDeltas }: DataplaneUpdate): string | null {
  for (const { id, added, removed } of setDeltas) {
    const members = state.sets.get(id)?.members;
    if (members === undefined) return `an update of set ${id}, which does not exist`;
    if (added.some((each) => members.has(each))) return `a member is added to set ${id} twice`;
    if (removed.some((each) => !members.has(each))) return `a member that is missing is removed from set ${id}`;
  }
  return null;
}

function setsOf({ destination, source }: DataplaneRule): readonly string[] {
  return [source, destination].flatMap((peer) =>
    peer === null ? [] : [...peer.sets, ...peer.notSets, ...peer.portSets, ...peer.notPortSets, ...peer.serviceSets],
  );
}

function dangling(state: NodeState): string | null {
  for (const { egress, ingress } of [...state.policies.values(), ...state.profiles.values()])
    for (const id of [...ingress, ...egress].flatMap(setsOf))
      if (!state.sets.has(id)) return `a rule names set ${id}, which does not exist`;
  for (const { id, tiers } of [...state.endpoints.values(), ...state.hostEndpoints.values()])
    for (const { egress, ingress, name: tier } of tiers)
      for (const name of [...ingress, ...egress])
        if (!state.policies.has(policyKey({ tier, name })))
          return `endpoint ${id} names policy ${name}, which does not exist`;
  return null;
}
