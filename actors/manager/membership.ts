/**
 * A manager's own membership: its beats, its record in the log, and a comparison of its replica with those of the others (each
 * beat contains the checksum of the last applied record).
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
import { membershipMachine } from "../../machines/manager/membership.machine.ts";
import { isDemoted } from "../../machines/manager/role.ts";
import { knownLevel } from "../../proto/format-level.ts";
import { isSameBytes, isSameMessage } from "../../machines/same-message.ts";
import type { Keyring } from "../../runtime/store/keyring.ts";
import { managerBeat, managerBeats } from "../../runtime/subjects.ts";
import type { ObjectChange } from "../../runtime/store/store.ts";
import { managerBeatOf } from "../bus-message.ts";
import type { EffectsOf } from "../../runtime/host.ts";
import type { Environment, Running } from "../environment.ts";

interface MembershipOptions {
  /** Own host:port for workers. */
  readonly addr: string;
  /** Addresses of the host name in `addr`; none when it is an address itself. */
  readonly addresses?: readonly string[];
  /** Checksum of the last record applied by the own replica; empty before the first. When absent, replicas are not compared. */
  readonly checksum?: () => Uint8Array;
  /** Highest level of the log's format that this manager knows; that of this version when absent. */
  readonly level?: number;
  /** Data keys that this manager has and reports to the leader. */
  readonly keyring?: Keyring;
  /** Fingerprint of the unlock key that this process last returned to a caller; empty: none. */
  readonly handedLock?: () => string;
  /** When this manager's operator last accepted a loss of records; null for never. */
  readonly lossAccepted?: () => Timestamp | null;
  /** Whether the replica has reached the log's end; true when absent. Report changes with `look`. */
  readonly isCurrent?: () => boolean;
  /** Whether this manager is joining: it writes no record while a live manager has its address, and is about to be refused. */
  readonly isJoining?: boolean;
  /** Nodes' trouble according to the own dispatcher: the leader moves no tasks while a manager misses some. */
  readonly trouble?: () => { readonly missing: number; readonly isHolding: boolean };
}

/**
 * Number of records whose checksums are kept for comparison: other replicas lag by at most a second's records, or are not
 * compared.
 */
const checksumsMax = 4_096;
const proposeTimeoutMs = 2_000;

/** The live manager that has this one's address; undefined: none. */
export function liveNamesake(store: Environment["store"], managerId: string, addr: string): Manager | undefined {
  return [...store.all("manager")].find((other) => other.alive && other.addr === addr && other.id !== managerId);
}

interface Membership extends Running {
  /** To be called when the contents of the record have changed. */
  look(): void;
}

export function startMembership(env: Environment, options: MembershipOptions): Membership {
  const { bus, store, telemetry, managerId, proposer } = env;
  const checksums = new Map<number, Uint8Array>();
  const ownChecksum = (): Uint8Array => options.checksum?.() ?? new Uint8Array();

  const { addresses = [], level = knownLevel } = options;

  /** A key returned by an earlier process stays recorded. */
  const handedLock = (): string => {
    const own = options.handedLock?.() ?? "";
    return own === "" ? (store.get("manager", managerId)?.handedLock ?? "") : own;
  };

  /** A lost mark does not clear the record. */
  const lossAccepted = (): Timestamp | null => {
    const own = options.lossAccepted?.() ?? null;
    const written = store.get("manager", managerId)?.lossAccepted ?? null;
    return timeMs(own) > timeMs(written) ? own : written;
  };

  const isRight = (): boolean => {
    // During catch-up, the replica has an outdated record.
    if (options.isCurrent?.() === false) return true;
    const node = store.get("node", managerId);
    // A demoted manager is about to exit and must not be listed again.
    if (node !== undefined && isDemoted(node)) return true;
    // Listed once, two managers at one address would both be asked for nats-servers, and be sent nodes.
    if (options.isJoining === true && liveNamesake(store, managerId, options.addr) !== undefined) return true;
    const record = store.get("manager", managerId);
    if (record === undefined || !record.alive || record.addr !== options.addr) return false;
    if (record.level !== level) return false;
    if (record.handedLock !== handedLock() || !isSameMessage(record.addresses, addresses)) return false;
    if (timeMs(record.lossAccepted) !== timeMs(lossAccepted())) return false;
    const held = options.keyring?.keys ?? [];
    return record.heldKeys.length === held.length && record.heldKeys.every(({ id }, at) => id === held[at]?.id);
  };
  const tell = (): void => hosted.send({ type: isRight() ? "record.right" : "record.wrong" });

  const effects: EffectsOf<typeof membershipMachine> = {
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
        level,
      });
      const operations = [Operation.create({ put: StoreObject.create({ manager }) })];
      // The chart retries a failed write; the outcome arrives through the store.
      void proposer.propose({ operations, mode: ProposeRequest_Mode.ATOMIC, timeoutMs: proposeTimeoutMs });
    },
  };
  const hosted = env.host.start(membershipMachine, `membership/${managerId}`, undefined, { effects });
  const watch = store.watch((commit) => {
    if (options.checksum !== undefined) remember(checksums, commit.version, options.checksum());
    const concerns = ({ object, table }: ObjectChange): boolean =>
      table === "manager" || (table === "node" && object.id === managerId);
    if (commit.changes.some(concerns)) tell();
  });
  const keys = options.keyring?.onChange(tell);
  const heard = bus.subscribe(managerBeats, (message) => {
    const beat = managerBeatOf(env, message);
    if (beat === null || beat.managerId === managerId || beat.checksum.length === 0) return;
    const own = checksums.get(beat.applied);
    if (own === undefined || own.length === 0 || isSameBytes(own, beat.checksum)) return;
    telemetry.metrics
      .counter(
        "muster_replica_mismatches_total",
        "Beats of managers whose replica differs from the own one at the same version.",
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
