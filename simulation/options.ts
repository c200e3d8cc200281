/** The options of one seed, drawn before anything runs: the cluster's size, which faults are on, and their rates. */
import { noFaults, type NetworkFaults } from "../runtime/sim/network.ts";
import { SimRandom } from "../runtime/sim/random.ts";
import type { Strike } from "./faults/fault.ts";
import { drawRates, type FaultRates } from "./faults/kinds.ts";
import type { TaskHabits } from "./nodes/machine.ts";
import type { DataplaneFaults } from "./nodes/dataplane-driver.ts";
import type { DriverFaults } from "./nodes/drivers.ts";
import type { StorageFaults } from "./nodes/storage.ts";
import type { TrialName } from "./trial-names.ts";

export interface SimOptions {
  readonly seed: number;
  readonly managers: number;
  readonly agents: number;
  /** Duration of the fault phase, in virtual milliseconds. */
  readonly faultsMs: number;
  /** Maximum error of each process's clock. */
  readonly skewMsMax: number;
  readonly driftPpmMax: number;
  readonly network: NetworkFaults;
  readonly rates: FaultRates;
  /** The strikes of faults, which then strike at no other time; null: drawn at `rates`. Kinds with rate 0 never strike. */
  readonly strikes: readonly Strike[] | null;
  readonly tasks: TaskHabits;
  /** Operations of the basic workload. */
  readonly operations: number;
  /** Operations with global services, and on their nodes; 0: none. */
  readonly globalOperations: number;
  /** Operations with networks and services that use them; 0: none. */
  readonly networkOperations: number;
  /** Operations of several clients that compete for the same resources; 0: none. */
  readonly contentionOperations: number;
  /** Operations with jobs and schedules; 0: none. */
  readonly jobOperations: number;
  /** Updates, and operations on them; 0: none. */
  readonly rolloutOperations: number;
  /** Operations with services that have high requirements; 0: none. */
  readonly placementOperations: number;
  /** Operations with rebalancing, which is on from the start; 0: off. */
  readonly rebalanceOperations: number;
  /** Changes of autolock and of the unlock key; 0: managers are never locked. */
  readonly lockOperations: number;
  /** Number of watching clients; 0: none. */
  readonly watchers: number;
  /** Number of watching clients of the JSON API; 0: not served. */
  readonly jsonClients: number;
  /** Reads of earlier versions and of histories; 0: none. */
  readonly looksBack: number;
  /** Subscriptions to the output of services; 0: none. */
  readonly logOperations: number;
  /** Replacements of the root certificate and of tokens; 0: none. */
  readonly certificateOperations: number;
  /** Demotions and promotions of managers; 0: none. */
  readonly roleOperations: number;
  /** Demoted managers are promoted again at the end. */
  readonly endsWithAllManagers: boolean;
  /** Operations with cluster volumes and services that mount them; 0: no storage. */
  readonly volumeOperations: number;
  /** Faults of the storage during the fault phase. */
  readonly storage: StorageFaults;
  /** Operations with network policy; 0: no node uses it. */
  readonly policyOperations: number;
  /** Faults of the dataplane drivers during the fault phase. */
  readonly dataplanes: DataplaneFaults;
  /** Operations with services on driver plugins; 0: no node has any. */
  readonly driverOperations: number;
  /** Operations with services whose tasks have health checks; 0: none. */
  readonly healthOperations: number;
  /** Faults of the plugins during the fault phase. */
  readonly drivers: DriverFaults;
  /** Mean milliseconds between two attacks on NATS without the cluster's keys; 0: no attacker. */
  readonly attackMs: number;
  /** Probability that a node's call is repeated later; 0: never. */
  readonly repeats: number;
  /** Probability that a node calls managers over NATS instead of gRPC. */
  readonly natsNodes: number;
  /**
   * Number of records in the log's history; older ones are purged after a snapshot. 0: the default, more than any run writes.
   */
  readonly historyRecords: number;
  /** Number of agents that join later. */
  readonly lateAgents: number;
  /** Number of single faults after the cluster has come to rest (trials.ts). */
  readonly trials: number;
  /** The trials, in this order; null: the next `trials` ones of the seed that the cluster is large enough for. */
  readonly onlyTrials: readonly TrialName[] | null;
}

export function drawOptions(seed: number): SimOptions {
  const random = new SimRandom(`${seed}/options`);
  const on = () => random.chance(0.35);
  const certificateOperations = drawCertificateOperations(new SimRandom(`${seed}/options.certificates`));
  const watchers = drawWatchers(new SimRandom(`${seed}/options.watchers`));
  const looksBack = drawLooksBack(new SimRandom(`${seed}/options.history`));
  return {
    seed,
    managers: random.pick([1, 2, 2, 3, 3]),
    agents: 1 + random.below(5),
    faultsMs: Math.round(random.between(10_000, 40_000)),
    skewMsMax: on() ? Math.round(random.between(10, 30_000)) : 0,
    driftPpmMax: on() ? Math.round(random.between(10, 2_000)) : 0,
    network: drawNetwork((name) => new SimRandom(`${seed}/options.network.${name}`)),
    rates: drawRates((kind) => new SimRandom(`${seed}/options.fault.${kind}`)),
    strikes: null,
    tasks: {
      refusal: on() ? random.between(0.01, 0.2) : 0,
      failure: on() ? random.between(0.05, 0.6) : 0,
      lifeMsMax: random.between(100, 15_000),
      prepareMsMax: random.between(1, 300),
      startMsMax: random.between(1, 800),
      stopMsMax: random.between(1, 2_000),
    },
    operations: 3 + random.below(12),
    // A separate random stream, so that the other options of a seed stay the same.
    globalOperations: drawGlobalOperations(new SimRandom(`${seed}/options.global`)),
    jobOperations: drawGlobalOperations(new SimRandom(`${seed}/options.jobs`)),
    networkOperations: drawGlobalOperations(new SimRandom(`${seed}/options.networks`)),
    rolloutOperations: drawRolloutOperations(new SimRandom(`${seed}/options.rollouts`)),
    contentionOperations: drawGlobalOperations(new SimRandom(`${seed}/options.contention`)),
    placementOperations: drawGlobalOperations(new SimRandom(`${seed}/options.placement`)),
    lockOperations: drawLockOperations(new SimRandom(`${seed}/options.locks`)),
    watchers,
    jsonClients: drawJsonClients(new SimRandom(`${seed}/options.json`)),
    looksBack,
    attackMs: drawAttackMs(new SimRandom(`${seed}/options.attacker`)),
    logOperations: drawGlobalOperations(new SimRandom(`${seed}/options.logs`)),
    certificateOperations,
    ...drawRoles(new SimRandom(`${seed}/options.roles`), certificateOperations > 0),
    ...drawVolumes(new SimRandom(`${seed}/options.volumes`)),
    ...drawPolicies(new SimRandom(`${seed}/options.policies`)),
    ...drawDrivers(new SimRandom(`${seed}/options.drivers`), new SimRandom(`${seed}/options.health`)),
    ...drawRebalance(new SimRandom(`${seed}/options.rebalance`)),
    repeats: drawRepeats(new SimRandom(`${seed}/options.repeats`)),
    natsNodes: drawNatsNodes(new SimRandom(`${seed}/options.natsNodes`)),
    historyRecords: drawHistoryRecords(new SimRandom(`${seed}/options.historyRecords`), looksBack + watchers > 0),
    trials: 2,
    onlyTrials: null,
  };
}

function drawRepeats(random: SimRandom): number {
  return random.chance(0.3) ? random.between(0.05, 0.4) : 0;
}

function drawNatsNodes(random: SimRandom): number {
  return random.chance(0.3) ? random.pick([0.5, 1]) : 0;
}

/** Reads of the past and resumed watches may need any record. */
function drawHistoryRecords(random: SimRandom, isWanted: boolean): number {
  return random.chance(isWanted ? 0 : 0.8) ? 20 + random.below(100) : 0;
}

/** Each fault is on in about a third of the seeds, because faults may hide each other. `randomOf`: a stream for each. */
function drawNetwork(randomOf: (name: string) => SimRandom): NetworkFaults {
  const draw = (name: keyof NetworkFaults, share: number, least: number, most: number): number => {
    const random = randomOf(name);
    return random.chance(share) ? random.between(least, most) : 0;
  };
  const delay = draw("delay", 0.35, 0.01, 0.3);
  return {
    ...noFaults(),
    loss: draw("loss", 0.35, 0.002, 0.08),
    duplication: draw("duplication", 0.35, 0.01, 0.2),
    reordering: draw("reordering", 0.35, 0.01, 0.3),
    delay,
    delayMsMax: delay === 0 ? 0 : draw("delayMsMax", 1, 5, 400),
    breakage: draw("breakage", 0.35, 0.000_5, 0.01),
    stall: draw("stall", 0.35, 0.01, 0.3),
    redelivery: draw("redelivery", 0.3, 0.01, 0.3),
    answerLoss: draw("answerLoss", 0.4, 0.02, 0.4),
    damage: draw("damage", 0.3, 0.000_2, 0.003),
  };
}

function drawVolumes(random: SimRandom): Pick<SimOptions, "volumeOperations" | "storage"> {
  const on = () => random.chance(0.35);
  return {
    volumeOperations: random.chance(0.5) ? 4 + random.below(12) : 0,
    storage: {
      delayMsMax: random.between(1, on() ? 3_000 : 100),
      failure: on() ? random.between(0.02, 0.4) : 0,
      lostAnswer: on() ? random.between(0.02, 0.4) : 0,
      hanging: on() ? random.between(0.01, 0.1) : 0,
    },
  };
}

function drawPolicies(random: SimRandom): Pick<SimOptions, "policyOperations" | "dataplanes"> {
  const policyOperations = random.chance(0.4) ? 4 + random.below(14) : 0;
  const chance = (most: number) => (random.chance(0.5) ? random.between(0.05, most) : 0);
  return {
    policyOperations,
    dataplanes: {
      fails: chance(0.4),
      dies: chance(0.8),
      hangs: chance(0.5),
      garbles: chance(0.4),
      readMsMax: random.chance(0.5) ? Math.round(random.between(2, 300)) : 0,
      room: random.chance(0.5) ? 1 + random.below(20) : 1_000,
    },
  };
}

function drawDrivers(
  random: SimRandom,
  health: SimRandom,
): Pick<SimOptions, "driverOperations" | "drivers" | "healthOperations"> {
  const chance = (most: number) => (random.chance(0.5) ? random.between(0.02, most) : 0);
  const healthOperations = health.chance(0.4) ? 4 + health.below(10) : 0;
  return {
    driverOperations: random.chance(0.5) ? 4 + random.below(10) : 0,
    healthOperations,
    drivers: {
      dieAtLaunch: chance(0.3),
      dieBeforeStart: chance(0.2),
      dieAfterStart: chance(0.2),
      endsByItself: chance(0.5),
      refuses: chance(0.3),
      unwell: healthOperations === 0 ? 0 : health.between(0, 0.6),
      pluginCrashMs: random.chance(0.6) ? Math.round(random.between(3_000, 20_000)) : 0,
      networkFailure: chance(0.2),
      makesNetworks: random.chance(0.3),
      pluginHang: random.chance(0.5) ? random.between(0, 0.6) : 0,
      forgets: chance(0.2),
      takenAway: chance(0.4),
    },
  };
}

function drawRebalance(random: SimRandom): Pick<SimOptions, "rebalanceOperations" | "lateAgents"> {
  if (!random.chance(0.4)) return { rebalanceOperations: 0, lateAgents: 0 };
  return { rebalanceOperations: 1 + random.below(4), lateAgents: 1 + random.below(2) };
}

/** A node that does not come back blocks a rotation of the root. */
function drawRoles(random: SimRandom, rotates: boolean): Pick<SimOptions, "roleOperations" | "endsWithAllManagers"> {
  const roleOperations = random.chance(0.4) ? 1 + random.below(6) : 0;
  return { roleOperations, endsWithAllManagers: rotates || random.chance(0.5) };
}

function drawCertificateOperations(random: SimRandom): number {
  return random.chance(0.5) ? 1 + random.below(6) : 0;
}

function drawLockOperations(random: SimRandom): number {
  return random.chance(0.5) ? 2 + random.below(8) : 0;
}

function drawAttackMs(random: SimRandom): number {
  return random.chance(0.4) ? Math.round(random.between(20, 400)) : 0;
}

function drawWatchers(random: SimRandom): number {
  return random.chance(0.5) ? 1 + random.below(4) : 0;
}

function drawJsonClients(random: SimRandom): number {
  return random.chance(0.5) ? 1 + random.below(3) : 0;
}

function drawLooksBack(random: SimRandom): number {
  return random.chance(0.5) ? 3 + random.below(10) : 0;
}

function drawGlobalOperations(random: SimRandom): number {
  return random.chance(0.5) ? 4 + random.below(12) : 0;
}

/** One line with the active options. */
export function describeOptions(options: SimOptions): string {
  const parts = [
    `managers=${options.managers}`,
    `agents=${options.agents}`,
    `operations=${options.operations}`,
    `globalOperations=${options.globalOperations}`,
    `jobOperations=${options.jobOperations}`,
    `networkOperations=${options.networkOperations}`,
    `contentionOperations=${options.contentionOperations}`,
    `rolloutOperations=${options.rolloutOperations}`,
    `placementOperations=${options.placementOperations}`,
    `volumeOperations=${options.volumeOperations}`,
    `driverOperations=${options.driverOperations}`,
    `healthOperations=${options.healthOperations}`,
    `rebalanceOperations=${options.rebalanceOperations}`,
    `lockOperations=${options.lockOperations}`,
    `watchers=${options.watchers}`,
    `jsonClients=${options.jsonClients}`,
    `looksBack=${options.looksBack}`,
    `logOperations=${options.logOperations}`,
    `certificateOperations=${options.certificateOperations}`,
    `roleOperations=${options.roleOperations}`,
    `lateAgents=${options.lateAgents}`,
    `faultsMs=${options.faultsMs}`,
    `trials=${options.trials}`,
  ];
  const note = (name: string, value: number | boolean) => {
    if (value === 0 || value === false) return;
    parts.push(value === true ? name : `${name}=${Number(value).toPrecision(3)}`);
  };
  note("attackMs", options.attackMs);
  note("repeats", options.repeats);
  note("natsNodes", options.natsNodes);
  note("historyRecords", options.historyRecords);
  note("skewMsMax", options.skewMsMax);
  note("driftPpmMax", options.driftPpmMax);
  for (const group of [
    options.network,
    options.rates,
    { refusal: options.tasks.refusal, failure: options.tasks.failure },
  ]) {
    for (const [name, value] of Object.entries(group) as [string, number | boolean][]) note(name, value);
  }
  return parts.join(" ");
}

/** In half of the seeds, and then many: operations should meet rollouts in each phase. */
function drawRolloutOperations(random: SimRandom): number {
  return random.chance(0.5) ? 6 + random.below(20) : 0;
}
