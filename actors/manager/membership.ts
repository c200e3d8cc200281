/**
 * A manager's own membership: its beats, its record in the log, and a look at whether its replica agrees with those of
 * the others (which beat with the checksum of the record that they applied last).
 */
import {
  Manager,
  ManagerBeat,
  Operation,
  ProposeRequest_Mode,
  StoreObject,
  type Timestamp,
} from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { membershipMachine } from "../../machines/manager/membership.ts";
import { isDemoted } from "../../machines/manager/manager-role.ts";
import { isSameBytes, isSameMessage } from "../../machines/same-message.ts";
import type { Keyring } from "../../runtime/store/keyring.ts";
import { managerBeat, managerBeats } from "../../runtime/subjects.ts";
import type { ObjectChange } from "../../runtime/store/store.ts";
import { busMessage } from "../bus-message.ts";
import type { Environment, Running } from "../environment.ts";

export interface MembershipOptions {
  /** Own host:port as workers reach it. */
  readonly addr: string;
  /** What the host name in `addr` stands for; none where it is an address itself. */
  readonly addresses?: readonly string[];
  /** Checksum of the last record that the own replica applied; empty before the first. Without it replicas are not compared. */
  readonly checksum?: () => Uint8Array;
  /** The data keys that this manager has, which it tells the leader of. */
  readonly keyring?: Keyring;
  /** Fingerprint of the unlock key that this life of the manager gave out last; empty: none. */
  readonly handedLock?: () => string;
  /** When this manager's operator last accepted a loss of records; null for never. */
  readonly lossAccepted?: () => Timestamp | null;
  /** Whether the replica has reached the log's end; it always has when absent. Tell of it by `look`. */
  readonly isCurrent?: () => boolean;
  /** What the own dispatcher thinks of its nodes: the leader moves nothing while a manager misses some. */
  readonly trouble?: () => { readonly missing: number; readonly isHolding: boolean };
}

/** Records whose checksums are remembered for comparing: others lag by a second's records at most, or they do not compare. */
const checksumsMax = 4_096;
const proposeTimeoutMs = 2_000;

export interface Membership extends Running {
  /** What the record is to say has changed. */
  look(): void;
}

export function startMembership(env: Environment, options: MembershipOptions): Membership {
  const { bus, store, telemetry, managerId, proposer } = env;
  const checksums = new Map<number, Uint8Array>();
  const ownChecksum = (): Uint8Array => options.checksum?.() ?? new Uint8Array();

  const addresses = options.addresses ?? [];

  /** What an earlier life gave out stays given. */
  const handedLock = (): string => {
    const own = options.handedLock?.() ?? "";
    return own === "" ? (store.get("manager", managerId)?.handedLock ?? "") : own;
  };

  /** A mark that was lost takes nothing back. */
  const lossAccepted = (): Timestamp | null => {
    const own = options.lossAccepted?.() ?? null;
    const written = store.get("manager", managerId)?.lossAccepted ?? null;
    return timeMs(own) > timeMs(written) ? own : written;
  };

  const isRight = (): boolean => {
    // Who still reads the past sees what he was then.
    if (options.isCurrent?.() === false) return true;
    const node = store.get("node", managerId);
    // A demoted manager is about to end, and must not be listed again meanwhile.
    if (node !== undefined && isDemoted(node)) return true;
    const record = store.get("manager", managerId);
    if (record === undefined || !record.alive || record.addr !== options.addr) return false;
    if (record.handedLock !== handedLock() || !isSameMessage(record.addresses, addresses)) return false;
    if (timeMs(record.lossAccepted) !== timeMs(lossAccepted())) return false;
    const held = options.keyring?.keys ?? [];
    return record.heldKeys.length === held.length && record.heldKeys.every(({ id }, at) => id === held[at]?.id);
  };
  const tell = (): void => hosted.actor.send({ type: isRight() ? "record.right" : "record.wrong" });

  const machine = membershipMachine.provide({
    actions: {
      publishBeat: () => {
        const trouble = options.trouble?.() ?? { missing: 0, isHolding: false };
        const beat = {
          managerId,
          addr: options.addr,
          applied: store.version,
          checksum: ownChecksum(),
          missingNodes: trouble.missing,
          holdsVerdicts: trouble.isHolding,
        };
        bus.publish(managerBeat(managerId), ManagerBeat.encode(ManagerBeat.create(beat)));
      },
      announce: () => {
        if (isRight()) return;
        const manager = Manager.create({
          id: managerId,
          addr: options.addr,
          addresses,
          alive: true,
          heldKeys: options.keyring?.held ?? [],
          handedLock: handedLock(),
          lossAccepted: lossAccepted(),
        });
        const operations = [Operation.create({ put: StoreObject.create({ manager }) })];
        // What failed is tried again by the chart; the store tells what became of it.
        void proposer.propose({ operations, mode: ProposeRequest_Mode.ATOMIC, timeoutMs: proposeTimeoutMs });
      },
    },
  });
  const hosted = env.host.start(machine, `membership/${managerId}`, undefined);
  const watch = store.watch((commit) => {
    if (options.checksum !== undefined) remember(checksums, commit.version, options.checksum());
    const isOwn = ({ object, table }: ObjectChange): boolean =>
      (table === "manager" || table === "node") && object.id === managerId;
    if (commit.changes.some(isOwn)) tell();
  });
  const keys = options.keyring?.onChange(tell);
  const heard = bus.subscribe(managerBeats, (message) => {
    const beat = busMessage(env, ManagerBeat, message);
    if (beat === null || beat.managerId === managerId || beat.checksum.length === 0) return;
    const own = checksums.get(beat.applied);
    if (own === undefined || own.length === 0 || isSameBytes(own, beat.checksum)) return;
    telemetry.metrics
      .counter(
        "muster_replica_mismatches_total",
        "Beats of a manager whose replica differs from the own one at the same version.",
      )
      .add();
    telemetry.log.error(
      { manager: beat.managerId, version: beat.applied },
      "replicas differ at the same version of the log: one of them is wrong",
    );
  });
  tell();
  let stopped = false;
  return {
    look: tell,
    stop: () => {
      if (stopped) return;
      stopped = true;
      watch.unsubscribe();
      keys?.unsubscribe();
      heard.unsubscribe();
      hosted.stop();
    },
  };
}

function remember(checksums: Map<number, Uint8Array>, version: number, checksum: Uint8Array): void {
  checksums.set(version, checksum);
  checksums.delete(version - checksumsMax);
}
