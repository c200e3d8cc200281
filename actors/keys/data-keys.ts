/**
 * The data keys of one manager: hosts the chart that fetches missing keys (machines/keys/key-fetch.machine.ts) and, while it leads, the
 * one that rotates the key (machines/keys/data-key.machine.ts); and serves its keys to other managers.
 */
import { dataKeyMachine, keyStep, type KeyStep } from "../../machines/keys/data-key.machine.ts";
import { keyFetchMachine } from "../../machines/keys/key-fetch.machine.ts";
import { unlockKeyOf } from "../../machines/keys/unlock-key.ts";
import {
  GetDataKeysResponse,
  PrepareNatsResponse,
  Trouble_Kind,
  type Cluster,
  type DataKeysService,
  type NatsCluster,
  type NatsMember,
  type PrepareNatsRequest,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { RpcError, Status, type ServiceHandlers } from "../../runtime/ports/rpc.ts";
import { newest, type Keyring } from "../../runtime/store/keyring.ts";
import { fingerprint } from "../../runtime/store/seal.ts";
import type { Vault } from "../../runtime/store/vault.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";
import type { NatsAuthorityPorts } from "./nats-authority.ts";

/** Requests the key of that id from the manager at an address (`host:port`), with this manager's certificate. */
export type FetchKeys = (address: string, keyId: string) => Promise<GetDataKeysResponse>;

export interface DataKeyParts {
  readonly vault: Vault;
  readonly keyring: Keyring;
  readonly fetchKeys: FetchKeys;
  /** URLs of the managers' own nats-servers, for managers that join; none with an external NATS, or when absent. */
  readonly natsServers?: () => readonly string[];
  /** The NATS cluster that has the log; null, or absent, before. */
  readonly natsCluster?: () => NatsCluster | null;
  /** Prepares this manager's server of a new NATS cluster; absent with an external NATS. */
  readonly prepareNats?: (request: PrepareNatsRequest) => Promise<NatsMember>;
  /** The CAs of the managers' own NATS; absent with an external one. */
  readonly natsAuthorities?: NatsAuthorityPorts;
  /** Wall clock, in milliseconds, for managers that join; their clocks are not compared when absent. */
  readonly wallMs?: () => number;
  /** Own host:port, which is never asked. */
  readonly addr: string;
  /** Further addresses to ask, besides those in the log and the key file: managers that the operator named. */
  readonly seeds: readonly string[];
  /** Called when the other managers repeatedly refuse to give this one the log's keys: the process must exit. */
  readonly onDenied?: (reason: string) => void;
  /** Where it raises that the log cannot be read; nowhere when absent. */
  readonly troubles?: Troubles;
}

function clusterOf({ store }: Environment): Cluster | undefined {
  for (const cluster of store.all("cluster")) return cluster;
  return undefined;
}

export function createDataKeys(parts: DataKeyParts): ServiceHandlers<typeof DataKeysService> {
  const { keyring, natsAuthorities, natsCluster, natsServers, prepareNats, vault, wallMs } = parts;
  return {
    async UseNatsAuthorities(list) {
      if (natsAuthorities === undefined)
        throw new RpcError(Status.FAILED_PRECONDITION, "this manager uses a NATS of its operator (--nats)");
      await natsAuthorities.use(list);
      return natsAuthorities.list();
    },
    async PrepareNats(request) {
      if (prepareNats === undefined)
        throw new RpcError(Status.FAILED_PRECONDITION, "this manager uses a NATS of its operator (--nats)");
      return PrepareNatsResponse.create({ member: await prepareNats(request) });
    },
    GetDataKeys({ keyId }) {
      if (keyId !== "" && keyring.find(keyId) === undefined)
        throw new RpcError(Status.NOT_FOUND, `this manager does not have data key ${keyId}`);
      const { keys, plainThrough } = keyring;
      const servers = natsServers?.() ?? [];
      const { natsCaCertificate, natsCaKey } = vault.fields;
      return GetDataKeysResponse.create({
        keys,
        plainThrough: Number.isFinite(plainThrough) ? plainThrough : 0,
        ...(wallMs === undefined ? {} : { answeredAt: timestampOf(wallMs()) }),
        ...(servers.length === 0
          ? {}
          : {
              natsCaCertificate,
              natsCaKey,
              natsServers: servers,
              natsCluster: natsCluster?.() ?? null,
              natsAuthorities: natsAuthorities?.list() ?? null,
            }),
      });
    },
  };
}

/** To be started on every manager. */
export function startKeyFetch(env: Environment, parts: DataKeyParts): Running {
  const { store, telemetry } = env;
  const { keyring, vault } = parts;
  const missing = telemetry.metrics.gauge(
    "muster_data_keys_lacking",
    "Data keys that this manager needs and does not have.",
  );
  let isStopped = false;
  /** Missing keys at the last check: most records of managers do not change them. */
  let seen = "";

  /** Missing keys: those that the log needs, and those that other living managers have. */
  const lacking = (): readonly string[] => {
    const ids = new Set(keyring.missing);
    for (const { alive, heldKeys } of store.all("manager")) {
      if (alive) for (const { id } of heldKeys) if (keyring.find(id) === undefined) ids.add(id);
    }
    return [...ids];
  };

  /** Managers that reported the key, then all registered ones, but never the own address. */
  const holders = (keyId: string): readonly string[] => {
    const managers = [...store.all("manager")];
    const told = managers.filter(({ heldKeys }) => heldKeys.some(({ id }) => id === keyId));
    const addresses = [...told.map(({ addr }) => addr), ...managers.map(({ addr }) => addr)];
    return [...new Set([...addresses, ...vault.fields.peers, ...parts.seeds])].filter(
      (address) => address !== parts.addr && address !== "",
    );
  };

  const askAll = async (): Promise<{ reason: string; isDenied: boolean }> => {
    let reason = "no other manager is registered";
    let isDenied = false;
    for (const keyId of lacking()) {
      for (const address of holders(keyId)) {
        if (isStopped || keyring.find(keyId) !== undefined) break;
        try {
          const { keys, plainThrough } = await parts.fetchKeys(address, keyId);
          if (isStopped) return { reason: "", isDenied: false };
          keyring.take(keys, plainThrough);
          reason = "";
        } catch (error) {
          reason = `${address}: ${sentence(error)}`;
          isDenied ||= error instanceof RpcError && error.code === Status.PERMISSION_DENIED;
        }
      }
    }
    const [unread] = keyring.unread;
    if (unread === undefined) parts.troubles?.clear(Trouble_Kind.KEY_LACKING);
    if (lacking().length === 0) return { reason: "", isDenied: false };
    if (unread !== undefined) {
      const said = `cannot read the log: it is sealed under data key ${unread}, which this manager does not have (${reason}): start a manager that has it, or restore this manager's key file from a copy`;
      parts.troubles?.raise({ kind: Trouble_Kind.KEY_LACKING, sentence: said, blocking: true });
    }
    telemetry.log.warn(
      { lacking: lacking(), reason },
      "data keys are missing; not reading the log any further without them",
    );
    return { reason, isDenied };
  };

  const hosted = env.host.start(keyFetchMachine, "key-fetch", undefined, {
    effects: {
      ask: () => {
        void askAll().then((round) => {
          if (!isStopped) hosted.send({ type: "round.ended", ...round });
        });
      },
      giveUp: ({ reason }) => parts.onDenied?.(reason),
      look: (_, self) => {
        const ids = lacking();
        seen = ids.join();
        missing.set(ids.length);
        // The key's id may have been damaged in transit; the record was read again since.
        if (keyring.unread.length === 0) parts.troubles?.clear(Trouble_Kind.KEY_LACKING);
        self.send({ type: "keys.read", lacking: ids });
      },
    },
  });

  function look(): void {
    const ids = lacking();
    const now = ids.join();
    if (now === seen) return;
    seen = now;
    missing.set(ids.length);
    hosted.send({ type: "keys.read", lacking: ids });
  }

  /** Saves the other managers' addresses, to be asked when nothing of the log can be read. */
  const rememberPeers = (): void => {
    const peers = [...store.all("manager")].map(({ addr }) => addr).filter((addr) => addr !== parts.addr);
    const known = vault.fields.peers;
    if (peers.length === known.length && peers.every((peer) => known.includes(peer))) return;
    try {
      vault.update({ peers });
    } catch (error) {
      telemetry.log.warn({ error: String(error) }, "cannot save the addresses of the other managers");
    }
  };

  const changing = keyring.onChange(look);
  const watching = store.watch(({ changes }) => {
    // A commit arrives only if the log can be read.
    parts.troubles?.clear(Trouble_Kind.KEY_LACKING);
    if (!changes.some(({ table }) => table === "manager")) return;
    look();
    rememberPeers();
  });
  look();
  return {
    stop: () => {
      isStopped = true;
      changing.unsubscribe();
      watching.unsubscribe();
      hosted.stop();
    },
  };
}

/** To be started on the leader only. */
export function startKeyRotation(env: Environment, { keyring, vault }: DataKeyParts): Running {
  const { store, telemetry } = env;

  const step = (): KeyStep => {
    const managers = [...store.all("manager")]
      .filter(({ alive }) => alive)
      .map(({ id, heldKeys }) => ({ id, keyIds: heldKeys.map((key) => key.id) }));
    const isListed = managers.some(({ id }) => id === env.managerId);
    return keyStep({
      newest: newest(keyring.keys),
      currentId: keyring.current?.id ?? "",
      clusterLock: fingerprint(unlockKeyOf(clusterOf(env)) ?? new Uint8Array()),
      ownLock: vault.lock,
      // A manager that is not listed yet counts as missing every key.
      managers: isListed ? managers : [...managers, { id: env.managerId, keyIds: [] }],
    });
  };

  const hosted = env.host.start(dataKeyMachine, "data-key", undefined, {
    effects: {
      makeKey: (_, self) => {
        try {
          const { id } = keyring.make(fingerprint(unlockKeyOf(clusterOf(env)) ?? new Uint8Array()));
          telemetry.log.info({ key: id }, "created a new data key; it is used once every living manager has it");
          self.send({ type: "key.made" });
        } catch (error) {
          telemetry.log.error({ error: String(error) }, "cannot save a new data key");
          self.send({ type: "key.failed", reason: String(error) });
        }
      },
      useKey: ({ keyId }) => {
        keyring.use(keyId, store.version);
        telemetry.log.info({ key: keyId }, "writing records under the new data key");
      },
      look: (_, self) => self.send({ type: "keys.seen", step: step() }),
    },
  });
  const look = (): void => hosted.send({ type: "keys.seen", step: step() });
  const changing = keyring.onChange(look);
  const relocking = vault.onRelock(look);
  const watching = store.watch(({ changes }) => {
    if (changes.some(({ table }) => table === "manager" || table === "cluster")) look();
  });
  look();
  return {
    stop: () => {
      relocking.unsubscribe();
      changing.unsubscribe();
      watching.unsubscribe();
      hosted.stop();
    },
  };
}
