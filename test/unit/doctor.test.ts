// The findings of `muster doctor` about a machine and a cluster: each that is not in order has a remedy.
import test from "ava";
import { clusterFindings, type ClusterFacts } from "../../cli/doctor/cluster.ts";
import { machineFindings, type MachineFacts } from "../../cli/doctor/machine.ts";
import type { Finding } from "../../cli/doctor/finding.ts";
import {
  Certificate,
  Cluster,
  EngineDescription,
  LogCopies,
  ManagerClock,
  Node,
  NodeDescription,
  NodeRole,
  NodeStatus,
  NodeStatus_State,
  PluginDescription,
  RootCA,
  StatusResponse,
  Trouble,
  Trouble_Kind,
} from "../../proto/gen/messages.ts";
import { createKeyAndCsr, createRoot, issue } from "../../lib/pki/index.ts";

const gibi = 2 ** 30;

const healthy: MachineFacts = {
  disk: { path: "/data", sizeBytes: 100 * gibi, freeBytes: 50 * gibi, inodes: 1_000_000, freeInodes: 900_000 },
  fsyncMs: [1, 1.5, 2, 9],
  takenPorts: [],
  namespaces: ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"],
  filesystems: ["proc", "overlay"],
  cgroups: { version: 2, controllers: ["cpuset", "cpu", "io", "memory", "pids"] },
  programs: ["ip", "nft"],
  isClockSynchronized: true,
  nats: { version: "2.15.1", isCurrent: true },
};

const wrong = (findings: readonly Finding[]): readonly string[] =>
  findings.filter(({ level }) => level !== "ok").map(({ check, found, level }) => `${level} ${check}: ${found}`);

test("a machine in order has no finding, and each limit has its own", (t) => {
  t.deepEqual(wrong(machineFindings(healthy)), []);
  const cases: readonly (readonly [Partial<MachineFacts>, RegExp])[] = [
    [
      { disk: { ...healthy.disk, freeBytes: 100 * 2 ** 20 } },
      /^problem disk: 100 MiB of 102,400 MiB are free at \/data$/,
    ],
    [{ disk: { ...healthy.disk, freeBytes: 300 * 2 ** 20 } }, /^warning disk: 300 MiB/],
    [{ disk: { ...healthy.disk, freeInodes: 5_000 } }, /^problem inodes: 5,000 of 1,000,000 are free at \/data$/],
    [{ disk: { ...healthy.disk, freeInodes: 40_000 } }, /^warning inodes: 40,000/],
    [
      { fsyncMs: [10, 20, 30] },
      /^warning fsync: a write is on the disk of \/data after 20\.0 ms \(median\), 30\.0 ms at most$/,
    ],
    [{ fsyncMs: [90, 120, 300] }, /^problem fsync: .* 120\.0 ms/],
    [{ fsyncMs: null }, /^problem fsync: \/data cannot be written$/],
    [{ takenPorts: ["2377/tcp"] }, /^warning ports: in use: 2377\/tcp$/],
    [{ isClockSynchronized: false }, /^warning clock: this machine's clock is not synchronized$/],
    [{ isClockSynchronized: null }, /^warning clock: nothing says whether/],
    [
      { nats: { version: "2.9.10", isCurrent: false } },
      /^warning nats-server: version 2\.9\.10 is no longer maintained/,
    ],
    [{ nats: { missing: "install it" } }, /^warning nats-server: not found: needed for a manager without --nats$/],
    [
      { namespaces: ["mnt", "pid"], filesystems: [] },
      /^warning kernel: lacks ipc namespaces, net .*overlay file systems$/,
    ],
    [{ cgroups: null }, /^warning cgroups: none are mounted$/],
    [{ cgroups: { version: 1, controllers: ["cpu", "pids"] } }, /^warning cgroups: version 1 without memory$/],
    [{ programs: ["ip"] }, /^warning programs: not installed: nft$/],
  ];
  for (const [fields, expected] of cases) {
    const findings = machineFindings({ ...healthy, ...fields });
    const found = wrong(findings);
    t.is(found.length, 1, found.join("\n"));
    t.regex(found[0] ?? "", expected);
    for (const { level, remedy } of findings) t.is(level === "ok", remedy === "");
  }
  // No fixed number of inodes, as on btrfs, and a manager that has its ports.
  t.deepEqual(
    wrong(machineFindings({ ...healthy, takenPorts: null, disk: { ...healthy.disk, inodes: 0, freeInodes: 0 } })),
    [],
  );
});

const dayMs = 86_400_000;
const nowMs = Date.now();

async function clusterFacts(): Promise<ClusterFacts & { certificateOf(days: number): Promise<Uint8Array> }> {
  const root = await createRoot();
  const { csrPem } = await createKeyAndCsr();
  const certificateOf = async (days: number): Promise<Uint8Array> =>
    Buffer.from(
      await issue({
        csrPem,
        rootCertificatePem: root.certificatePem,
        rootKeyPem: root.keyPem,
        nodeId: "n",
        role: "swarm-worker",
        organization: "c",
        validitySeconds: 90 * 86_400,
        // Issued 90 days before its end.
        nowMs: nowMs + (days - 90) * dayMs,
      }),
    );
  return {
    status: StatusResponse.create({ managerId: "m1", addr: "192.0.2.1:2377", leaderId: "m1", healthy: true }),
    cluster: Cluster.create({ id: "c", rootCa: RootCA.create({ caCert: Buffer.from(root.certificatePem) }) }),
    nodes: [],
    clocks: null,
    nowMs,
    version: "1.2.0",
    certificateOf,
  };
}

function node(name: string, certificate: Uint8Array, fields: Partial<Node> = {}, version = "1.2.0"): Node {
  const engine = EngineDescription.create({
    engineVersion: version,
    plugins: [PluginDescription.create({ type: "Driver", name: "exec" })],
  });
  return Node.create({
    id: name,
    description: NodeDescription.create({ hostname: name, engine }),
    status: NodeStatus.create({ state: NodeStatus_State.READY }),
    certificate: Certificate.create({ certificate }),
    ...fields,
  });
}

test("a cluster in order has no finding; nodes, certificates, versions and the manager's troubles have theirs", async (t) => {
  const facts = await clusterFacts();
  const { certificateOf } = facts;
  const fresh = await certificateOf(60);
  const engine = node("engine", fresh, {}, "20.10.24");
  const stock = Node.patch(engine, {
    description: NodeDescription.create({
      hostname: "engine",
      engine: EngineDescription.create({ engineVersion: "20.10.24" }),
    }),
  });
  const well = [node("m", fresh, { role: NodeRole.MANAGER }), node("a", fresh), stock];
  t.deepEqual(wrong(clusterFindings({ ...facts, nodes: well })), []);

  const down = NodeStatus.create({ state: NodeStatus_State.DOWN });
  const twin = Node.patch(node("a", fresh), { id: "b" });
  t.deepEqual(wrong(clusterFindings({ ...facts, nodes: [...well, twin] })), [
    "warning hostnames: several nodes are called a",
  ]);
  const others = [Node.patch(twin, { role: NodeRole.MANAGER }), Node.patch(twin, { status: down })];
  for (const other of others)
    t.false(clusterFindings({ ...facts, nodes: [...well, other] }).some(({ check }) => check === "hostnames"));
  const ill = [
    node("m", fresh, { role: NodeRole.MANAGER, status: down }),
    node("late", await certificateOf(5)),
    node("expired", await certificateOf(-1)),
    node("old", fresh, { status: down }, "1.1.0"),
  ];
  t.deepEqual(wrong(clusterFindings({ ...facts, nodes: ill })), [
    "warning managers: not reachable: m",
    "warning nodes: not ready: old",
    "problem certificates: expired: expired",
    "warning certificates: overdue for renewal: late",
    "warning versions: 1.1.0 on old",
  ]);
  const status = StatusResponse.create({
    managerId: "m1",
    addr: "192.0.2.1:2377",
    warnings: ["The log has one replica."],
    troubles: [
      Trouble.create({ kind: Trouble_Kind.NO_LINK, sentence: "no connection to NATS", blocking: true }),
      Trouble.create({ kind: Trouble_Kind.SLOW_LINK, sentence: "the link is slow" }),
    ],
  });
  t.deepEqual(wrong(clusterFindings({ ...facts, status, nodes: well })), [
    "problem manager: m1 at 192.0.2.1:2377 makes no progress",
    "problem manager: no connection to NATS",
    "warning manager: the link is slow",
    "warning nats: The log has one replica",
    "problem leader: no manager leads: nothing can be changed",
  ]);
  const copies = (wanted: number, current: number) =>
    clusterFindings({
      ...facts,
      nodes: well,
      status: StatusResponse.patch(facts.status, { logCopies: LogCopies.create({ wanted, current }) }),
    }).flatMap(({ check, found: text, level }) => (check === "copies" ? [`${level} ${text}`] : []));
  t.deepEqual(copies(3, 3), ["ok 3 of 3 copies of the log are current"]);
  t.deepEqual(copies(3, 2), ["warning 2 of 3 copies of the log are current"]);
  t.deepEqual(copies(1, 1), [], "that is a warning of the manager");
  const apart = (aheadMs: number, errorMs: number, own: Readonly<Record<"aheadMs" | "errorMs", number>>) =>
    clusterFindings({
      ...facts,
      nodes: well,
      clocks: {
        managers: [
          ManagerClock.create({ managerId: "m", aheadMs, errorMs }),
          ManagerClock.create({ managerId: "m9", failure: "it is down" }),
        ],
        own,
      },
    }).filter(({ check }) => check === "clocks");
  const here = { aheadMs: 200, errorMs: 5 };
  const found = (...args: Parameters<typeof apart>) => apart(...args).map((each) => `${each.level} ${each.found}`);
  const agree = "ok those of the managers and of this machine agree to 1.0 s; no answer from m9";
  t.deepEqual(found(-400, 10, here), [agree]);
  t.deepEqual(found(1_900, 1_000, here), [agree], "the measurement may be wrong by that");
  t.deepEqual(found(-2_400, 10, here), ["warning this machine is 2.6 s ahead of m; no answer from m9"]);
  t.deepEqual(found(90_000, 10, { aheadMs: -100, errorMs: 0 }), [
    "problem m is 90 s ahead of this machine; no answer from m9",
  ]);
  for (const finding of [...apart(0, 0, here), ...apart(9_000, 0, here)])
    t.is(finding.level === "ok", finding.remedy === "", finding.found);
  const years = (count: number) => nowMs + count * 365 * dayMs;
  t.regex(
    wrong(clusterFindings({ ...facts, nodes: [], nowMs: years(20) - 30 * dayMs })).join(),
    /^warning root certificate: expires in/,
  );
  t.regex(
    wrong(clusterFindings({ ...facts, nodes: [], nowMs: years(21) })).join(),
    /^problem root certificate: has expired/,
  );
  for (const finding of clusterFindings({ ...facts, status, nodes: ill }))
    t.is(finding.level === "ok", finding.remedy === "", finding.found);
});
