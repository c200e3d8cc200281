/**
 * The data keys of one manager: hosts the chart by which it fetches what it lacks (machines/keys/key-fetch.ts) and, while it
 * leads, the one by which the key is changed (machines/keys/data-key.ts); and gives what it holds to other managers.
 */
import { dataKeyMachine, keyStep, type KeyStep } from "../../machines/keys/data-key.ts";
import { keyFetchMachine } from "../../machines/keys/key-fetch.ts";
import { unlockKeyOf } from "../../machines/keys/unlock-key.ts";
import { GetDataKeysResponse, Trouble_Kind, type Cluster, type DataKeysService } from "../../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers } from "../../runtime/rpc.ts";
import { newest, type Keyring } from "../../runtime/store/keyring.ts";
import { fingerprint } from "../../runtime/store/seal.ts";
import type { Vault } from "../../runtime/store/vault.ts";
import type { Troubles } from "../../runtime/troubles.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";

/** Asks the manager at an address (`host:port`) for the key of that id; shows it this manager's certificate. */
export type FetchKeys = (address: string, keyId: string) => Promise<GetDataKeysResponse>;

export interface DataKeyParts {
  readonly vault: Vault;
  readonly keyring: Keyring;
  readonly fetchKeys: FetchKeys;
  /** Own host:port, which is not asked. */
  readonly addr: string;
  /** Where else to ask, besides whom the log and the key file name: managers that the operator named. */
  readonly seeds: readonly string[];
  /** The other managers refuse to give this one what the log is sealed under, again and again: the process is to end. */
  readonly onDenied?: (reason: string) => void;
  /** Where it says that the log cannot be read on; nowhere when absent. */
  readonly troubles?: Troubles;
}

function clusterOf({ store }: Environment): Cluster | undefined {
  for (const cluster of store.all("cluster")) return cluster;
  return undefined;
}

export function createDataKeys({ keyring }: DataKeyParts): ServiceHandlers<typeof DataKeysService> {
  return {
    GetDataKeys({ keyId }) {
      if (keyId !== "" && keyring.find(keyId) === undefined)
        throw new RpcError(Status.NOT_FOUND, `this manager does not hold the data key ${keyId}`);
      const { keys, plainThrough } = keyring;
      return GetDataKeysResponse.create({ keys, plainThrough: Number.isFinite(plainThrough) ? plainThrough : 0 });
    },
  };
}

/** On every manager. */
export function startKeyFetch(env: Environment, parts: DataKeyParts): Running {
  const { store, telemetry } = env;
  const { keyring, vault } = parts;
  const missing = telemetry.metrics.gauge(
    "muster_data_keys_lacking",
    "Data keys that this manager knows of and has not.",
  );
  let isStopped = false;
  /** What was lacking at the last look: most records of managers change nothing of it. */
  let seen = "";

  /** What the log cannot be read without, and what other living managers hold. */
  const lacking = (): readonly string[] => {
    const ids = new Set(keyring.lacking);
    for (const { alive, heldKeys } of store.all("manager")) {
      if (alive) for (const { id } of heldKeys) if (keyring.find(id) === undefined) ids.add(id);
    }
    return [...ids];
  };

  /** Those that told of the key, then all that are known, the own address never. */
  const holders = (keyId: string): readonly string[] => {
    const managers = [...store.all("manager")];
    const told = managers.filter(({ heldKeys }) => heldKeys.some(({ id }) => id === keyId));
    const addresses = [...told.map(({ addr }) => addr), ...managers.map(({ addr }) => addr)];
    return [...new Set([...addresses, ...vault.fields.peers, ...parts.seeds])].filter(
      (address) => address !== parts.addr && address !== "",
    );
  };

  const askAll = async (): Promise<{ reason: string; isDenied: boolean }> => {
    let reason = "no other manager is known";
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
      const said = `the log cannot be read on: it is sealed under data key ${unread}, which this manager does not have (${reason}): start a manager that has it, or put this manager's key file back from a copy`;
      parts.troubles?.raise({ kind: Trouble_Kind.KEY_LACKING, sentence: said, blocking: true });
    }
    telemetry.log.warn(
      { lacking: lacking(), reason },
      "data keys are lacking; the log is read no further without them",
    );
    return { reason, isDenied };
  };

  const hosted = env.host.start(
    keyFetchMachine.provide({
      actions: {
        ask: () => {
          void askAll().then((round) => {
            if (!isStopped) hosted.actor.send({ type: "round.ended", ...round });
          });
        },
        giveUp: (_, { reason }) => parts.onDenied?.(reason),
        look: ({ self }) => {
          const ids = lacking();
          seen = ids.join();
          missing.set(ids.length);
          // The name of a key may have been damaged on its way; the record was read again since.
          if (keyring.unread.length === 0) parts.troubles?.clear(Trouble_Kind.KEY_LACKING);
          self.send({ type: "keys.looked", lacking: ids });
        },
      },
    }),
    "key-fetch",
    undefined,
  );

  function look(): void {
    const ids = lacking();
    const now = ids.join();
    if (now === seen) return;
    seen = now;
    missing.set(ids.length);
    hosted.actor.send({ type: "keys.looked", lacking: ids });
  }

  /** Whom to ask where nothing of the log can be read: the other managers, as last heard of. */
  const rememberPeers = (): void => {
    const peers = [...store.all("manager")].map(({ addr }) => addr).filter((addr) => addr !== parts.addr);
    const known = vault.fields.peers;
    if (peers.length === known.length && peers.every((peer) => known.includes(peer))) return;
    try {
      vault.update({ peers });
    } catch (error) {
      telemetry.log.warn({ error: String(error) }, "the addresses of the other managers could not be saved");
    }
  };

  const changing = keyring.onChange(look);
  const watching = store.watch(({ changes }) => {
    // Whatever comes was read.
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

/** On the leader alone. */
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
      // One that has not told yet that it lives counts as lacking everything.
      managers: isListed ? managers : [...managers, { id: env.managerId, keyIds: [] }],
    });
  };

  const hosted = env.host.start(
    dataKeyMachine.provide({
      actions: {
        makeKey: ({ self }) => {
          try {
            const { id } = keyring.make(fingerprint(unlockKeyOf(clusterOf(env)) ?? new Uint8Array()));
            telemetry.log.info({ key: id }, "a new data key was made; it is used once every living manager has it");
            self.send({ type: "key.made" });
          } catch (error) {
            telemetry.log.error({ error: String(error) }, "a new data key could not be saved");
            self.send({ type: "key.failed", reason: String(error) });
          }
        },
        useKey: (_, { keyId }) => {
          keyring.use(keyId, store.version);
          telemetry.log.info({ key: keyId }, "records are written under the new data key");
        },
        look: ({ self }) => self.send({ type: "keys.seen", step: step() }),
      },
    }),
    "data-key",
    undefined,
  );
  const look = (): void => hosted.actor.send({ type: "keys.seen", step: step() });
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
