/** Checks the commits of a rehearsal against the invariants that hold in any run. */
import { checkLeaders } from "../invariants/leader.ts";
import { checkNodes } from "../invariants/global.ts";
import { checkAssigned, checkDeclared } from "../invariants/nodes.ts";
import { checkNetworks } from "../invariants/networks.ts";
import { checkPlacements } from "../invariants/placement.ts";
import { checkRoles } from "../invariants/roles.ts";
import { RolloutEnds } from "../invariants/rollout-ends.ts";
import { RolloutChecks } from "../invariants/rollout.ts";
import { checkSameState, checkSlots, checkStatesGrow, checkVersionGrows } from "../invariants/always.ts";
import type { SimManagers } from "../managers/managers.ts";
import type { Scene } from "../scene.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import type { Commit } from "../../runtime/store/store.ts";

/**
 * Checks of the whole state run after as many changes as a fraction of its objects, so that their cost for each change does not
 * grow with the cluster. In objects for each change.
 */
const wholeShare = 8;
/**
 * Replicas are compared after this many changes for each object: their states differ for good once they differ, and a hash encodes all
 * objects, in each replica.
 */
const hashedAfter = 16;

interface ChecksOptions {
  readonly scene: Scene;
  readonly managers: SimManagers;
  /** Clocks of machines step: what was measured by them may be wrong. */
  readonly haveClocksStepped: boolean;
}

export class RehearsalChecks {
  readonly #options: ChecksOptions;
  readonly #hashes = new Map<number, string>();
  /** Rollouts are followed once, on whatever replica is first. */
  readonly #rollouts = new RolloutChecks();
  readonly #ends: RolloutEnds;
  #newest = 0;
  #changesUntilNetworks = 0;
  #changesUntilHash = 0;
  #hashAt = 0;

  constructor(options: ChecksOptions) {
    this.#options = options;
    this.#ends = new RolloutEnds(!options.haveClocksStepped);
  }

  /** Follows one life of a manager. */
  follow(name: string, replica: Replica): void {
    const { scene } = this.#options;
    let version = 0;
    replica.watch((commit: Commit & { readonly epoch?: number }) => {
      scene.demand(name, checkVersionGrows(commit, version));
      version = commit.version;
      // A loaded snapshot is not a transaction.
      if (commit.epoch === undefined) return;
      // All replicas of a version are the same (S4), so each version is checked where it appears first.
      if (version > this.#newest) {
        this.#newest = version;
        this.#check(name, commit, commit.epoch, replica);
      }
      if (version === this.#hashAt) scene.demand(name, checkSameState(version, replica.stateHash(), this.#hashes));
    });
  }

  #check(name: string, commit: Commit, epoch: number, replica: Replica): void {
    const { haveClocksStepped, managers, scene } = this.#options;
    const demand = (claim: string | null): void => scene.demand(name, claim);
    demand(checkSlots(commit, replica));
    demand(checkNodes(commit, replica));
    demand(checkStatesGrow(commit));
    demand(checkAssigned(commit, replica));
    demand(checkDeclared(commit, replica));
    demand(checkLeaders(managers));
    demand(checkPlacements(commit, replica));
    demand(checkRoles(commit, replica));
    demand(this.#ends.check(commit, epoch, replica));
    if (!haveClocksStepped) demand(this.#rollouts.check(commit, replica));
    const changes = commit.changes.length;
    this.#changesUntilNetworks -= changes;
    if (this.#changesUntilNetworks <= 0) {
      this.#changesUntilNetworks = sizeOf(replica) / wholeShare;
      demand(checkNetworks(commit, replica));
    }
    this.#changesUntilHash -= changes;
    if (this.#changesUntilHash <= 0) {
      this.#changesUntilHash = hashedAfter * sizeOf(replica);
      this.#hashes.clear();
      this.#hashAt = commit.version;
    }
  }
}

function sizeOf(replica: Replica): number {
  return replica.count("task") + replica.count("node") + replica.count("service");
}
