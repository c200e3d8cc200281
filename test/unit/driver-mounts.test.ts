// Mounts of driver tasks: which are allowed, and how the node creates them.
import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { newSpec } from "../../cli/service/spec.ts";
import { placeMounts, unplaceMounts } from "../../linux/task-home/mounts.ts";
import { mountsProblem, planMounts, type PlannedMount } from "../../machines/driver/mounts.ts";
import { driverRuntimeOf } from "../../machines/driver/spec.ts";
import { volumeWantsOf } from "../../machines/scheduling/volumes.ts";
import {
  Driver,
  DriverDevice,
  Mount,
  Mount_BindOptions,
  Mount_BindOptions_Propagation,
  Mount_TmpfsOptions,
  Mount_Type,
  Mount_VolumeOptions,
  Task,
} from "../../proto/gen/messages.ts";

const bind = (source: string, target: string) => Mount.create({ type: Mount_Type.BIND, source, target });
const volume = (source: string, options: Partial<Mount_VolumeOptions> = {}) =>
  Mount.create({ type: Mount_Type.VOLUME, source, target: "/v", volumeOptions: Mount_VolumeOptions.create(options) });

const wrong: readonly (readonly [what: string, mount: Mount, problem: RegExp])[] = [
  ["a target outside the task", bind("/srv", "../up"), /invalid mount target "\.\.\/up"/],
  ["no target", bind("/srv", "/"), /invalid mount target/],
  ["a relative path", bind("srv", "/a"), /invalid bind mount source "srv"/],
  [
    "a volume of another driver",
    volume("data", { driverConfig: Driver.create({ name: "nfs" }) }),
    /unsupported volume driver nfs/,
  ],
  ["a volume's name with a slash", volume("a/b"), /invalid volume name "a\/b"/],
  ["a volume subpath that leads outside", volume("data", { subpath: "../x" }), /invalid volume subpath/],
  [
    "a tmpfs with a source",
    Mount.create({ type: Mount_Type.TMPFS, source: "x", target: "/a" }),
    /must not have a source/,
  ],
  [
    "a cluster mount without a source",
    Mount.create({ type: Mount_Type.CLUSTER, target: "/a" }),
    /needs the name of a volume/,
  ],
  ["a named pipe", Mount.create({ type: Mount_Type.NPIPE, source: "x", target: "/a" }), /Windows/],
];
for (const [what, mount, problem] of wrong)
  test(`${what} is rejected`, (t) => t.regex(mountsProblem([mount], []) ?? "", problem));

test("two mounts at one target, and invalid devices, are rejected", (t) => {
  t.regex(mountsProblem([bind("/a", "/x/"), bind("/b", "/x")], []) ?? "", /duplicate mount point: \/x/);
  const device = (fields: Partial<DriverDevice>) => mountsProblem([], [DriverDevice.create(fields)]) ?? "";
  t.regex(device({ hostPath: "fuse" }), /invalid device path "fuse"/);
  t.regex(device({ hostPath: "/dev/fuse", taskPath: "fuse" }), /invalid device path "fuse" in the task/);
  t.regex(device({ hostPath: "/dev/fuse", permissions: "rx" }), /invalid device permissions "rx"/);
  t.is(device({ hostPath: "/dev/fuse", permissions: "rw" }), "");
});

test("cluster volumes are where their plugins mounted them, and other mounts as requested", (t) => {
  const bindOptions = Mount_BindOptions.create({
    propagation: Mount_BindOptions_Propagation.RSLAVE,
    createmountpoint: true,
  });
  const tmpfsOptions = Mount_TmpfsOptions.create({ sizeBytes: 1024, mode: 0o700 });
  const mounts = [
    Mount.patch(bind("/srv", "/srv"), { bindOptions, readonly: true }),
    Mount.create({ type: Mount_Type.CLUSTER, source: "db", target: "/data", readonly: true }),
    Mount.create({ type: Mount_Type.TMPFS, target: "/tmp", tmpfsOptions }),
    volume("cache", { subpath: "a" }),
  ];
  t.is(mountsProblem(mounts, []), null);
  t.deepEqual(planMounts(mounts, [{ source: "db", target: "/data", path: "/mnt/db" }]), [
    { target: "/data", isReadOnly: true, propagation: "", source: { kind: "path", path: "/mnt/db", isMade: false } },
    {
      target: "/srv",
      isReadOnly: true,
      propagation: "host-to-task",
      source: { kind: "path", path: "/srv", isMade: true },
    },
    { target: "/tmp", isReadOnly: false, propagation: "", source: { kind: "memory", bytes: 1024, mode: 0o700 } },
    { target: "/v", isReadOnly: false, propagation: "", source: { kind: "volume", name: "cache", subpath: "a" } },
  ]);
});

test("flags become mounts and devices of a driver's task, and the scheduler sees its cluster volumes", (t) => {
  const spec = newSpec(
    {
      driver: "docker",
      "driver-config": "{}",
      mount: ["type=bind,source=/srv,target=/srv", "type=cluster,source=db,target=/data,readonly"],
      device: ["/dev/fuse", "/dev/sda:/dev/xvda:r"],
    },
    [],
  );
  const { devices, mounts } = driverRuntimeOf(spec.task)?.spec ?? { devices: [], mounts: [] };
  t.deepEqual(
    devices.map(({ hostPath, permissions, taskPath }) => [hostPath, taskPath, permissions]),
    [
      ["/dev/fuse", "", ""],
      ["/dev/sda", "/dev/xvda", "r"],
    ],
  );
  t.deepEqual(
    mounts.map(({ target }) => target),
    ["/srv", "/data"],
  );
  t.deepEqual(volumeWantsOf(Task.create({ spec: spec.task })), [{ source: "db", target: "/data", isReadOnly: true }]);
  t.throws(() => newSpec({ device: ["/dev/fuse"] }, ["image"]), { message: /--device requires/ });
  t.throws(() => newSpec({ driver: "docker", "driver-config": "{}", device: ["fuse"] }, []), { message: /"fuse"/ });
});

function places(t: ExecutionContext) {
  const top = mkdtempSync(join(tmpdir(), "muster-mounts-"));
  t.teardown(() => rmSync(top, { recursive: true, force: true }));
  const [directory, home] = [join(top, "allocs"), join(top, "allocs", "t1")];
  mkdirSync(home, { recursive: true });
  return { top, directory, home };
}

const planned = (source: PlannedMount["source"]): PlannedMount => ({
  target: "/x",
  isReadOnly: false,
  propagation: "",
  source,
});

test("a named volume outlives its tasks, one without a name is the task's own, and a path must exist", async (t) => {
  const { directory, home, top } = places(t);
  const mounts = [
    planned({ kind: "volume", name: "data", subpath: "" }),
    planned({ kind: "volume", name: "", subpath: "" }),
    planned({ kind: "path", path: join(top, "made"), isMade: true }),
  ];
  const paths = await placeMounts(mounts, { directory, home });
  t.deepEqual(paths, [join(top, "local-volumes", "data"), join(home, "mounts", "1"), join(top, "made")]);
  writeFileSync(join(paths[0] as string, "file"), "kept");
  t.deepEqual(await placeMounts(mounts, { directory, home }), paths);
  await unplaceMounts(home);
  t.is(readFileSync(join(top, "local-volumes", "data", "file"), "utf8"), "kept");
  const missing = planned({ kind: "path", path: join(top, "missing"), isMade: false });
  await t.throwsAsync(placeMounts([missing], { directory, home }), {
    message: /missing at \/x: it does not exist on this node/,
  });
});

test("a link inside a volume never leads a subpath outside", async (t) => {
  const { directory, home, top } = places(t);
  const data = join(top, "local-volumes", "data");
  mkdirSync(join(data, "inside"), { recursive: true });
  symlinkSync("/etc", join(data, "out"));
  const part = (subpath: string) =>
    placeMounts([planned({ kind: "volume", name: "data", subpath })], { directory, home });
  t.deepEqual(await part("inside"), [join(data, "inside")]);
  await t.throwsAsync(part("out"), { message: /no subpath out/ });
  await t.throwsAsync(part("none"), { message: /no subpath none/ });
});

const asRoot = process.getuid?.() === 0 ? test : test.skip;
asRoot("a tmpfs is mounted with its size, and removed when the task has ended", async (t) => {
  const { directory, home } = places(t);
  const memory = planned({ kind: "memory", bytes: 65_536, mode: 0o750 });
  const [path] = (await placeMounts([memory], { directory, home })) as [string];
  t.teardown(() => existsSync(path) && execFileSync("sh", ["-c", 'umount "$1" 2>/dev/null || true', "sh", path]));
  t.deepEqual(await placeMounts([memory], { directory, home }), [path]);
  t.is(statSync(path).mode & 0o777, 0o750);
  t.throws(() => writeFileSync(join(path, "big"), new Uint8Array(200_000)), { message: /ENOSPC/ });
  await unplaceMounts(home);
  t.false(existsSync(join(path, "big")));
  t.is(statSync(path).dev, statSync(home).dev);
});
