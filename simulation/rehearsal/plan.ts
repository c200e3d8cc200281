/**
 * A rehearsal's input, whichever files it came from: a cluster, with how its parts behave, and a scenario, a script of steps in it.
 * All times are in milliseconds of simulated time.
 */
import type { NetworkSpec, ServiceSpec } from "../../proto/gen/messages.ts";

export interface ClusterPlan {
  /** Number of managers, at least 1. */
  readonly managers: number;
  /** With unique names. */
  readonly nodes: readonly NodePlan[];
  readonly networks: readonly NetworkSpec[];
  /** Created before the scenario begins, and running by then. */
  readonly services: readonly ServicePlan[];
}

export interface NodePlan {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** In billionths of a CPU. */
  readonly nanoCpus: bigint;
  readonly memoryBytes: bigint;
  /** Drawn failures of its machine; null: it fails only when a step says so. */
  readonly failures: NodeFailures | null;
}

/** Both times are drawn from exponential distributions. */
export interface NodeFailures {
  readonly meanUpMs: number;
  readonly meanDownMs: number;
}

/** A time that is drawn from a log-normal distribution with these percentiles. */
export interface DurationPlan {
  readonly medianMs: number;
  /** At least the median. */
  readonly p99Ms: number;
}

/** How long a job's task runs until it ends by itself, and the probability, from 0 to 1, that it fails then. */
export interface RunPlan {
  readonly length: DurationPlan;
  readonly failure: number;
}

/** How the tasks of a service behave on any node. */
export interface BehaviourPlan {
  /** From the preparation of a task, which includes the pull of an image that its node lacks. */
  readonly pull: DurationPlan;
  /** From the end of the preparation to RUNNING (or healthy, with a health check). */
  readonly start: DurationPlan;
  readonly stop: DurationPlan;
  /** Probability, from 0 to 1, that a start fails. */
  readonly startFailure: number;
  /** Mean time after which a running task fails by itself; null: never. */
  readonly meanLifeMs: number | null;
  /** Null for a service that is not a job: its tasks run until they are stopped. */
  readonly run: RunPlan | null;
}

export interface ServicePlan {
  /** Its name is unique. */
  readonly spec: ServiceSpec;
  readonly behaviour: BehaviourPlan;
}

export interface ScenarioPlan {
  readonly name: string;
  readonly description: string;
  /** Length of the rehearsal; no step begins later. */
  readonly durationMs: number;
  /** Ordered by time; steps of one time in the order of the file. */
  readonly steps: readonly StepPlan[];
}

export interface StepPlan {
  readonly atMs: number;
  readonly action: Action;
}

/** Nodes that a step applies to: by name, by a label with a value, or a number of nodes that the seed draws. */
export type NodeChoice =
  | { readonly by: "name"; readonly names: readonly string[] }
  | { readonly by: "label"; readonly label: string; readonly value: string }
  | { readonly by: "number"; readonly count: number };

export type Action =
  | { readonly kind: "deploy"; readonly service: ServicePlan }
  | { readonly kind: "scale"; readonly service: string; readonly replicas: number }
  /** To another spec of the same service, with the behaviour of its new version. */
  | { readonly kind: "update"; readonly service: ServicePlan }
  | { readonly kind: "rollback"; readonly service: string }
  | { readonly kind: "remove"; readonly service: string }
  | { readonly kind: "drain"; readonly nodes: NodeChoice }
  | { readonly kind: "activate"; readonly nodes: NodeChoice }
  /** New nodes join, at once or spread over a time. */
  | { readonly kind: "join"; readonly nodes: readonly NodePlan[]; readonly overMs: number }
  /** Their machines lose power; null: for good. */
  | { readonly kind: "lose-nodes"; readonly nodes: NodeChoice; readonly forMs: number | null }
  /** They lose power and come back, again and again. */
  | {
      readonly kind: "flap-nodes";
      readonly nodes: NodeChoice;
      readonly upMs: number;
      readonly downMs: number;
      readonly forMs: number;
    }
  /** All managers are cut off from these nodes, in both directions. */
  | { readonly kind: "partition-nodes"; readonly nodes: NodeChoice; readonly forMs: number }
  /** Managers, by number from 1, are cut off from the other managers and from NATS. */
  | { readonly kind: "partition-managers"; readonly managers: readonly number[]; readonly forMs: number }
  /** kill -9 of the manager that leads; null: it does not come back. */
  | { readonly kind: "kill-leader"; readonly forMs: number | null }
  /** Each append to the log takes this much longer. */
  | { readonly kind: "slow-log"; readonly delayMs: number; readonly forMs: number }
  /** Appends fail for lack of space. */
  | { readonly kind: "full-log"; readonly forMs: number }
  | { readonly kind: "lose-nats"; readonly forMs: number }
  /** Pulls of images that a node lacks fail. */
  | { readonly kind: "registry-outage"; readonly forMs: number }
  /** Wall clocks of these nodes, or of the manager with this number, step by this time; negative: back. */
  | { readonly kind: "step-clocks"; readonly of: NodeChoice | { readonly manager: number }; readonly byMs: number };
