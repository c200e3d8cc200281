// muster volume, and Control's answers about volumes.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import {
  CreateVolumeRequest,
  GetVolumeRequest,
  ListVolumesRequest,
  ListVolumesRequest_Filters,
  RemoveVolumeRequest,
  UpdateVolumeRequest,
  VolumeAccessMode,
  VolumeInfo,
  VolumePublishStatus,
  VolumePublishStatus_State,
  VolumeSecret,
  VolumeSpec,
  VolumeSpec_VolumeAvailability as Availability,
  Volume,
} from "../../proto/gen/messages.ts";
import { csiSocketPaths } from "../../cli/serve/csi-flag.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { tempDir } from "../fixtures/muster.ts";
import { world } from "../support/control.ts";
import { volumeSpec } from "../support/csi.ts";
import { call, refusalOf } from "../support/manager.ts";
import { served } from "../support/served.ts";

test("volume create accepts Docker's flags and prints the name", async (t) => {
  const { manager, muster } = await served(t);
  const file = join(tempDir(t, "secret"), "key");
  writeFileSync(file, "hush");
  await muster("secret", "create", "key", file);
  const flags =
    "--type mount --scope multi --sharing onewriter --group g --availability pause --label team=a -o tier=gold " +
    "--secret pass=key --required-bytes 1g --limit-bytes 2g " +
    "--topology-required zone=a,rack=1 --topology-required zone=b --topology-preferred zone=b";
  const { lines, remarks } = await muster("volume", "create", "-d", "fast", ...flags.split(" "), "data");
  t.deepEqual(remarks, []);
  t.deepEqual(lines, ["data"]);
  const spec = manager.store.byName("volume", "data")?.spec ?? VolumeSpec.create();
  t.like(VolumeSpec.toJson(spec), {
    group: "g",
    driver: { name: "fast", options: { tier: "gold" } },
    annotations: { name: "data", labels: { team: "a" } },
  });
  t.is(spec.availability, Availability.PAUSE);
  t.is(spec.capacityRange?.requiredBytes, 2 ** 30);
  t.is(spec.capacityRange?.limitBytes, 2 ** 31);
  t.not(spec.accessMode?.mount, null);
  t.deepEqual(
    spec.AccessibilityRequirements?.requisite.map(({ segments }) => segments),
    [{ zone: "a", rack: "1" }, { zone: "b" }],
  );
  t.deepEqual(
    spec.secrets.map(({ key, secret }) => [key, secret]),
    [["pass", manager.store.byName("secret", "key")?.id]],
  );
});

test("volume create reports what is wrong with its flags", async (t) => {
  const { muster } = await served(t);
  t.like(await muster("volume", "create", "data"), { status: 125 });
  t.like(await muster("volume", "create", "-d", "fast", "--type", "tape", "data"), { status: 125 });
  t.like(await muster("volume", "create", "-d", "fast", "--scope", "all", "data"), { status: 125 });
  t.like(await muster("volume", "create", "-d", "fast", "--topology-required", "zone", "data"), { status: 125 });
  t.like(await muster("volume", "create", "-d", "fast", "--secret", "k=nobody", "data"), {
    status: 1,
    remarks: ["muster: secret nobody not found"],
  });
});

test("volume ls has Docker's columns and states, inspect Docker's object, and update and rm change it", async (t) => {
  const { manager, muster } = await served(t);
  for (const name of ["a", "b"]) await muster("volume", "create", "-d", "fast", "--type", "mount", name);
  const made = manager.store.byName("volume", "b") as Volume;
  manager.seed(
    "volume",
    Volume.patch(made, {
      volumeInfo: VolumeInfo.create({ volumeId: "vol-b", capacityBytes: 5 }),
      publishStatus: [VolumePublishStatus.create({ nodeId: "n1", state: VolumePublishStatus_State.PUBLISHED })],
    }),
  );
  const rows = (await muster("volume", "ls", "--cluster")).lines.map((line) => line.trimEnd().split(/ {2,}/));
  t.deepEqual(rows, [
    ["VOLUME NAME", "GROUP", "DRIVER", "AVAILABILITY", "STATUS"],
    ["a", "fast", "active", "pending creation"],
    ["b", "fast", "active", "in use (1 node)"],
  ]);
  t.deepEqual((await muster("volume", "ls", "-q", "-f", "name=b")).lines, ["b"]);
  const [object] = JSON.parse((await muster("volume", "inspect", "b")).lines.join("\n"));
  t.like(object, { Name: "b", Driver: "fast", Scope: "global" });
  t.like(object.ClusterVolume, {
    Info: { CapacityBytes: 5, VolumeID: "vol-b" },
    PublishStatus: [{ NodeID: "n1", State: "published" }],
  });
  t.like(object.ClusterVolume.Spec, { AccessMode: { Scope: "single", Sharing: "none" }, Availability: "active" });
  await muster("volume", "update", "--availability", "drain", "--label-add", "x=y", "b");
  t.is(manager.store.byName("volume", "b")?.spec?.availability, Availability.DRAIN);
  t.deepEqual(manager.store.byName("volume", "b")?.spec?.annotations?.labels, { x: "y" });
  t.like(await muster("volume", "rm", "b"), { status: 1, remarks: ["muster: volume is still in use"] });
  t.deepEqual((await muster("volume", "rm", "-f", "b")).lines, ["b"]);
  t.is(manager.store.byName("volume", "b"), undefined);
  await muster("volume", "rm", "a");
  t.true(manager.store.byName("volume", "a")?.pendingDelete);
});

test("Control rejects volumes in SwarmKit's words", async (t) => {
  const { control } = world();
  const create = (spec: VolumeSpec | null) =>
    refusalOf(() => control.CreateVolume(CreateVolumeRequest.create({ spec }), call()));
  const { INVALID_ARGUMENT, NOT_FOUND } = Status;
  const good = volumeSpec("data");
  const invalid = (message: string) => ({ code: INVALID_ARGUMENT, message });
  t.deepEqual(await create(null), invalid("spec must not be nil"));
  t.deepEqual(await create(VolumeSpec.patch(good, { driver: null })), invalid("driver must be specified"));
  t.deepEqual(await create(VolumeSpec.patch(good, { annotations: null })), invalid("meta: name must be provided"));
  t.deepEqual(await create(VolumeSpec.patch(good, { accessMode: null })), invalid("AccessMode must not be nil"));
  t.deepEqual(
    await create(VolumeSpec.patch(good, { accessMode: VolumeAccessMode.create() })),
    invalid("Volume AccessMode must specify either Mount or Block access type"),
  );
  const secrets = ["s1", "s2"].map((secret) => VolumeSecret.create({ key: "k", secret }));
  t.deepEqual(await create(VolumeSpec.patch(good, { secrets })), invalid("secrets not found: s1, s2"));
  const { volume } = await control.CreateVolume(CreateVolumeRequest.create({ spec: good }), call());
  t.like(await create(good), { code: Status.ALREADY_EXISTS });
  const version = volume?.meta?.version ?? null;
  const update = (fields: Partial<UpdateVolumeRequest>) =>
    refusalOf(() => {
      const request = { volumeId: volume?.id ?? "", volumeVersion: version, spec: good };
      return control.UpdateVolume(UpdateVolumeRequest.create({ ...request, ...fields }), call());
    });
  t.deepEqual(await update({ volumeId: "" }), invalid("VolumeID must not be empty"));
  t.deepEqual(await update({ spec: null }), invalid("Spec must not be empty"));
  t.deepEqual(await update({ volumeVersion: null }), invalid("VolumeVersion must not be empty"));
  t.deepEqual(await update({ volumeId: "nobody" }), { code: NOT_FOUND, message: "volume nobody not found" });
  t.deepEqual(await update({ spec: VolumeSpec.patch(good, { group: "g" }) }), invalid("Group cannot be updated"));
  t.deepEqual(await update({ spec: volumeSpec("other") }), invalid("Name cannot be updated"));
  t.deepEqual(await update({ spec: volumeSpec("data", { driver: "slow" }) }), invalid("Driver cannot be updated"));
  t.is(await update({ spec: VolumeSpec.patch(good, { availability: Availability.DRAIN }) }), null);
  const missing = { code: NOT_FOUND, message: "volume nobody not found" };
  t.deepEqual(
    await refusalOf(() => control.GetVolume(GetVolumeRequest.create({ volumeId: "nobody" }), call())),
    missing,
  );
  t.deepEqual(
    await refusalOf(() => control.RemoveVolume(RemoveVolumeRequest.create({ volumeId: "nobody" }), call())),
    missing,
  );
});

test("Control lists volumes by group, driver, name and label", async (t) => {
  const { control } = world();
  for (const [name, traits] of [
    ["one", { group: "g", labels: { a: "1" } }],
    ["two", { driver: "slow" }],
  ] as const)
    await control.CreateVolume(CreateVolumeRequest.create({ spec: volumeSpec(name, traits) }), call());
  const listed = async (filters: Partial<ListVolumesRequest_Filters>) => {
    const request = ListVolumesRequest.create({ filters: ListVolumesRequest_Filters.create(filters) });
    const { volumes } = await control.ListVolumes(request, call());
    return volumes.map(({ spec }) => spec?.annotations?.name);
  };
  t.deepEqual(await listed({}), ["one", "two"]);
  t.deepEqual(await listed({ groups: ["g"] }), ["one"]);
  t.deepEqual(await listed({ drivers: ["slow"] }), ["two"]);
  t.deepEqual(await listed({ names: ["two"], groups: ["g"] }), []);
  t.deepEqual(await listed({ labels: { a: "" } }), ["one"]);
});

test("a storage plugin is named with its socket", (t) => {
  t.deepEqual(
    [...csiSocketPaths(["fast=unix:///run/fast.sock", "slow=/run/slow.sock"])],
    [
      ["fast", "/run/fast.sock"],
      ["slow", "/run/slow.sock"],
    ],
  );
  for (const wrong of ["fast", "=x", "fast=", "fast=tcp://host:1", "/x=/y"])
    t.throws(() => csiSocketPaths([wrong]), { message: /expected NAME=unix:/ }, wrong);
  t.throws(() => csiSocketPaths(["a=/x", "a=/y"]), { message: '--csi-plugin sets "a" more than once' });
});
