import test from "ava";
import { driveDataplane } from "../../actors/agent/node-dataplane.ts";
import { calculateNode, clusterFacts } from "../../machines/policy/calculate.ts";
import { deltasOf, endpointOfKey } from "../../machines/policy/felix.ts";
import { difference, emptyState, wholeState } from "../../machines/policy/node-state.ts";
import {
  EndpointStatus,
  FromDataplane,
  ProcessStatusUpdate,
  WorkloadEndpointID,
  WorkloadEndpointStatusUpdate,
  type ToDataplane,
} from "../../proto/gen/felix.ts";
import {
  DataplaneIcmp,
  DataplaneUpdate,
  HostEndpoint,
  NetworkPolicy,
  PolicyPeer,
  PolicyRule,
  type DataplaneReport,
} from "../../proto/gen/messages.ts";
import type { DataplaneListener } from "../../runtime/ports/dataplane.ts";
import { testManager } from "../support/manager.ts";
import { chosen, nodeOf, port, resourceOf, serviceOf, taskOf } from "../support/policies.ts";

const db = NetworkPolicy.create({
  name: "db",
  selector: "service == 'db'",
  appliesIngress: true,
  ingress: [
    PolicyRule.create({
      action: "allow",
      protocol: "tcp",
      source: PolicyPeer.create({ selector: chosen("service == 'web'"), notNets: ["10.0.0.9"] }),
      destination: PolicyPeer.create({ ports: [port(80, 90)], namedPorts: ["sql"] }),
    }),
    PolicyRule.create({ action: "deny", protocol: "icmp", icmp: DataplaneIcmp.create({ type: 0 }) }),
    PolicyRule.create({ action: "pass", protocol: "47" }),
  ],
});

const state = calculateNode(
  clusterFacts({
    managers: [],
    nodes: [nodeOf("n1", "n1", {}, "192.0.2.1"), nodeOf("n2", "n2", {}, "2001:db8::2")],
    services: [serviceOf("db", {}, [["sql", 5_432]]), serviceOf("web")],
    tasks: [taskOf("d", "db", "n1", ["10.0.0.1/24", "fd00::1/64"]), taskOf("w", "web", "n2", ["10.0.0.2/24"])],
    resources: [
      resourceOf({ kind: "NetworkPolicy", object: db }),
      resourceOf({ kind: "HostEndpoint", object: HostEndpoint.create({ name: "h", node: "n1", interface: "eth0" }) }),
    ],
  }),
  "n1",
);

test("a node's state is expressed in a driver's messages", (t) => {
  const put = deltasOf(wholeState(state)).map((delta) => (delta.kind === "put" ? delta.object : null));
  const policy = put.find((each) => each?.kind === "policy");
  const [allow, ping, gre] = policy?.policy.inboundRules ?? [];
  t.like(allow, { action: "allow", ipVersion: 4, protocol: { name: "tcp" }, notSrcNet: ["10.0.0.9/32"] });
  t.deepEqual(
    allow?.dstPorts.map(({ first, last }) => [first, last]),
    [[80, 90]],
  );
  t.is(allow?.srcIpSetIds.length, 1);
  t.is(allow?.dstNamedPortIpSetIds.length, 1);
  // Type 0 is valid.
  t.like(ping, { action: "deny", icmpType: 0, icmpTypeCode: null });
  t.like(gre, { action: "pass", protocol: { number: 47 } });
  t.like(
    put.find((each) => each?.kind === "workload"),
    {
      id: { orchestratorId: "muster", workloadId: "d", endpointId: "net" },
      endpoint: { state: "active", ipv4Nets: ["10.0.0.1/32"], ipv6Nets: ["fd00::1/128"], profileIds: ["muster.allow"] },
    },
  );
  t.like(
    put.find((each) => each?.kind === "host"),
    { id: { endpointId: "h" }, endpoint: { name: "eth0" } },
  );
  t.deepEqual(
    put.flatMap((each) => (each?.kind === "node" ? [[each.hostname, each.ipv4Addr]] : [])),
    [["n1", "192.0.2.1"]],
  );
  const gone = deltasOf(difference(state, emptyState()));
  t.is(gone.filter(({ kind }) => kind === "removed").length, gone.length);
  t.deepEqual(endpointOfKey("workload muster d net"), { kind: "workload", id: "d/net" });
  t.is(endpointOfKey("workload k8s d net"), null);
});

test("a driver starts when the state is complete, gets the cluster's settings first, and its reports are forwarded", async (t) => {
  const { env, clock } = testManager();
  const sent: Partial<ToDataplane>[] = [];
  const listeners: DataplaneListener[] = [];
  const dataplane = driveDataplane(
    {
      clock,
      random: env.random,
      telemetry: env.telemetry,
      host: env.host,
      launcher: {
        launch: (listener) => {
          listeners.push(listener);
          return {
            pid: 1,
            send: (fields) => sent.push(fields) > 0,
            end: () => clock.soon(() => listener.onExit("asked to")),
          };
        },
      },
    },
    { name: "test", generation: "current", settings: { ReportingIntervalSecs: "0" } },
  );
  const reports: DataplaneReport[] = [];
  const run = async () => {
    for (let turn = 0; turn < 20; turn++) {
      clock.advance(1);
      await Promise.resolve();
    }
  };
  dataplane.onReport((report) => reports.push(report));
  t.is(reports[0]?.state, "waiting");
  await run();
  t.is(listeners.length, 0);
  dataplane.take(wholeState(state, 4), "");
  await run();
  t.is(listeners.length, 1);
  t.like(sent[0]?.configUpdate?.config, { InterfacePrefix: "mst", ReportingIntervalSecs: "0" });
  t.truthy(sent.at(-1)?.inSync);
  t.is(reports.at(-1)?.state, "in-sync");
  const id = WorkloadEndpointID.create({ orchestratorId: "muster", workloadId: "d", endpointId: "net" });
  const status = EndpointStatus.create({ status: "up" });
  listeners[0]?.onMessage(
    FromDataplane.create({ workloadEndpointStatusUpdate: WorkloadEndpointStatusUpdate.create({ id, status }) }),
  );
  await run();
  t.deepEqual(
    reports.at(-1)?.endpoints.map((each) => [each.id, each.status]),
    [["d/net", "up"]],
  );
  t.is(reports.at(-1)?.driver, "test");
  t.is(reports.at(-1)?.driverSince, 0);
  const pulse = ProcessStatusUpdate.create({ uptime: 1.5 });
  listeners[0]?.onMessage(FromDataplane.create({ processStatusUpdate: pulse }));
  const heardMs = clock.now();
  await run();
  t.is(reports.at(-1)?.driverSince, Math.floor((heardMs - 1_500) / 1_000));
  const before = sent.length;
  dataplane.take(DataplaneUpdate.patch(difference(state, emptyState(), 5), { config: null }), "");
  await run();
  t.true(sent.slice(before).some(({ workloadEndpointRemove }) => workloadEndpointRemove != null));
  const ended = dataplane.end();
  await run();
  await ended;
});
