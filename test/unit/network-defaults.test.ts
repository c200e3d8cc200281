// The network settings of a new cluster.
import test from "ava";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import { startKeyManager } from "../../actors/keys/key-manager.ts";
import { areKeysWhole, keyringSize, keySubsystems, withRotatedKeys } from "../../machines/keys/key-rotation.machine.ts";
import { networkDefaults, networkDefaultsProblem } from "../../machines/allocation/network-defaults.ts";
import { isPredefined } from "../../machines/allocation/new-networks.ts";
import { Cluster, EncryptionKey } from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { settle } from "../../runtime/sim/clock.ts";
import { testManager } from "../support/manager.ts";

const problem = test.macro((t, fields: Partial<typeof networkDefaults>, expected: string | null) => {
  t.is(networkDefaultsProblem({ ...networkDefaults, ...fields }), expected);
});
test("the defaults are accepted", problem, {}, null);
test("other pools are accepted", problem, { addressPools: ["10.20.0.0/16", "172.20.0.0/14"], subnetLength: 26 }, null);
test(
  "a pool must be IPv4",
  problem,
  { addressPools: ["fd00::/48"] },
  'invalid address pool "fd00::/48": expected an IPv4 subnet such as 10.20.0.0/16',
);
test(
  "a pool must hold at least one subnet",
  problem,
  { addressPools: ["10.0.0.0/25"] },
  "invalid address pool 10.0.0.0/25: smaller than a subnet (/24)",
);
test(
  "pools must not overlap",
  problem,
  { addressPools: ["10.0.0.0/8", "10.20.0.0/16"] },
  "invalid address pool 10.20.0.0/16: it overlaps with another one",
);
test(
  "a subnet must have usable addresses",
  problem,
  { subnetLength: 30 },
  "invalid subnet mask length 30: expected a number from 1 to 29",
);
test(
  "the data path port must not be a well-known port",
  problem,
  { dataPathPort: 80 },
  "invalid data path port 80: expected a number from 1024 to 49151",
);

test("a new cluster has its pools, its port, whole rings of keys, an ingress network and the nodes' own networks", async (t) => {
  const { env, store } = testManager();
  const networks = { addressPools: ["10.20.0.0/16"], subnetLength: 26, dataPathPort: 7789 };
  await bootstrapCluster(env, pki, { advertise: "manager:2377", networks });
  const [cluster] = store.all("cluster");
  t.like(cluster, { defaultAddressPool: ["10.20.0.0/16"], subnetSize: 26, VXLANUDPPort: 7789 });
  t.is(store.get("node", env.managerId)?.VXLANUDPPort, 7789);
  const keys = cluster?.networkBootstrapKeys ?? [];
  t.deepEqual(
    keys.map(({ subsystem }) => subsystem),
    keySubsystems.flatMap((name) => Array.from({ length: keyringSize }, () => name)),
  );
  t.is(new Set(keys.map(({ lamportTime }) => lamportTime)).size, 2 * keyringSize);
  const all = [...store.all("network")];
  t.deepEqual(
    all.map(({ spec }) => [spec?.annotations?.name, spec?.driverConfig?.name, spec?.ingress]),
    [
      ["ingress", "", true],
      ["bridge", "bridge", false],
      ["host", "host", false],
    ],
  );
  t.deepEqual(all.map(isPredefined), [false, true, true]);
  const version = store.version;
  await bootstrapCluster(env, pki, { advertise: "manager:2377" });
  t.is(store.version, version, "the next leader finds it all");
});

test("a rotation drops the oldest key of each subsystem, and the next leader creates missing keys at once", async (t) => {
  let drawn = 0;
  const key = (): Uint8Array => new Uint8Array([(drawn += 1)]);
  const whole = withRotatedKeys(Cluster.create({}), key);
  const rotated = withRotatedKeys(whole, key);
  t.deepEqual(
    rotated.networkBootstrapKeys.map((each) => each.lamportTime),
    [2, 3, 7, 5, 6, 8],
  );
  const { env, seed, store } = testManager();
  const lone = EncryptionKey.create({ subsystem: "networking:gossip", key: key(), lamportTime: 4 });
  seed("cluster", Cluster.create({ id: "c", networkBootstrapKeys: [lone], encryptionKeyLamportClock: 4 }));
  const manager = startKeyManager(env);
  t.teardown(() => manager.stop());
  await settle();
  const cluster = store.get("cluster", "c");
  t.true(cluster !== undefined && areKeysWhole(cluster));
  t.is(cluster?.networkBootstrapKeys[0]?.lamportTime, 4, "keys in use stay");
});
