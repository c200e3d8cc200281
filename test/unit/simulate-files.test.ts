import test from "ava";
import fc from "fast-check";
import { readCluster } from "../../cli/simulate/read-cluster.ts";
import { readScenario } from "../../cli/simulate/read-scenario.ts";
import { readyDescription, readyScenario, readyScenarios, sampleCluster } from "../../cli/simulate/ready-scenarios.ts";
import { writeCluster } from "../../cli/simulate/write-cluster.ts";
import { runDefaults } from "../../cli/simulate/read-behaviour.ts";
import { yamlText } from "../../cli/stack/yaml.ts";
import { UserError } from "../../lib/user-error.ts";
import type { ClusterPlan, ScenarioPlan } from "../../simulation/rehearsal/plan.ts";

const unset = { get: () => undefined };
const cluster = (text: string, file = "cluster.yaml"): ClusterPlan => readCluster(text, file, unset);
const shop = `
managers: 3
nodes:
  - name: worker-{1..4}
    labels: {rack: [a, b]}
networks:
  front: {}
services:
  web:
    image: web:1
    networks: [front]
    ports: ["80:8080"]
    deploy: {replicas: 4, update_config: {parallelism: 2, delay: 10s}}
    x-behaviour: {pull: {median: 4s, p99: 20s}, start: 3s, start-failure: 2%, life: 30d}
  agent:
    deploy: {mode: global}
`;
const scenario = (text: string, variables: Readonly<Record<string, string>> = {}): ScenarioPlan =>
  readScenario(text, "s.yaml", cluster(shop), { get: (name) => variables[name] });

test("a cluster has managers, series of nodes with labels in turn, and services with their behaviour", (t) => {
  const plan = cluster(shop);
  t.is(plan.managers, 3);
  t.deepEqual(
    plan.nodes.map(({ name, labels }) => [name, labels["rack"]]),
    [
      ["worker-1", "a"],
      ["worker-2", "b"],
      ["worker-3", "a"],
      ["worker-4", "b"],
    ],
  );
  const [web, agent] = plan.services;
  t.is(web?.spec.replicated?.replicas, 4);
  t.is(web?.spec.update?.parallelism, 2);
  t.deepEqual(
    web?.spec.task?.networks.map(({ target }) => target),
    ["front"],
  );
  t.deepEqual(web?.behaviour, {
    pull: { medianMs: 4_000, p99Ms: 20_000 },
    start: { medianMs: 3_000, p99Ms: 3_000 },
    stop: { medianMs: 500, p99Ms: 5_000 },
    startFailure: 0.02,
    meanLifeMs: 30 * 86_400_000,
    run: null,
  });
  t.not(agent?.spec.global, null);
  t.deepEqual(agent?.spec.task?.networks, [], "without networks, a service is on none");
});

test("nodes have documented defaults", (t) => {
  const [node] = cluster("nodes: 2").nodes;
  t.deepEqual(node, {
    name: "worker-1",
    labels: {},
    nanoCpus: 4_000_000_000n,
    memoryBytes: 8n * 2n ** 30n,
    failures: null,
  });
  const named = cluster("nodes: [{name: gpu, count: 2, failures: {every: 30d, for: 10m}}, {name: 'n{08..10}'}]").nodes;
  t.deepEqual(
    named.map(({ name }) => name),
    ["gpu-1", "gpu-2", "n08", "n09", "n10"],
  );
  t.deepEqual(named[0]?.failures, { meanUpMs: 30 * 86_400_000, meanDownMs: 600_000 });
});

test("environment, secrets, mounts and commands of services are not in the plan", (t) => {
  const plan = cluster(`
nodes: 1
secrets: {key: {file: /nowhere}}
services:
  web:
    image: web
    command: run --password hunter2
    environment: {TOKEN: hunter2}
    secrets: [key]
    labels: {a: hunter2}
    healthcheck: {test: curl -u hunter2, interval: 5s}
    volumes: ["/hunter2:/data"]
    deploy: {labels: {basic-auth: hunter2, muster.rollout.deadline: 10m}}
`);
  t.false(writeCluster(plan).includes("hunter2"));
  t.deepEqual(plan.services[0]?.spec.annotations?.labels, { "muster.rollout.deadline": "10m" });
  t.is(plan.services[0]?.spec.task?.container?.healthcheck?.interval?.seconds, 5);
});

const refused = test.macro((t, text: string, ...lines: readonly string[]) => {
  const error = t.throws(() => cluster(text, "c.yaml"), { instanceOf: UserError });
  t.deepEqual(error.message.split("\n"), lines);
});

test(
  "an unknown key of a cluster",
  refused,
  "nodes: 1\nmanager: 3",
  "c.yaml:2:1: manager: unknown key; did you mean 'managers'?",
);
test("a missing key", refused, "managers: 1", "c.yaml:1:1: requires 'nodes'");
test(
  "too many managers",
  refused,
  "managers: 12\nnodes: 1",
  "c.yaml:1:11: managers: must be a whole number from 1 to 9, not '12'",
);
test(
  "YAML that cannot be parsed",
  refused,
  "nodes: [1",
  "c.yaml:1:10: flow sequence in block collection must be sufficiently indented and end with a ]",
);
test(
  "a list instead of a cluster",
  refused,
  "- 1",
  "c.yaml:1:1: a cluster must be a mapping with 'nodes' and 'services'",
);
test(
  "a series of more nodes than a rehearsal may have",
  refused,
  "nodes: [{name: 'n{1..20001}'}]",
  "c.yaml:1:16: nodes[0].name: has more than 20000 nodes: 'n{1..20001}'",
);
test(
  "groups of more nodes than a rehearsal may have",
  refused,
  "nodes: [{name: 'n{1..20000}'}, {name: m}]",
  "c.yaml:1:32: nodes[1]: makes 20001 nodes; at most 20000 are possible",
);
test(
  "all mistakes of nodes",
  refused,
  "nodes:\n  - name: n{4..1}\n    cpu: 4\n    memory: 8q\n    failures: {every: 30d}\n  - name: a\n  - name: a",
  "c.yaml:2:11: nodes[0].name: must not count down: 'n{4..1}'",
  "c.yaml:3:5: nodes[0].cpu: unknown key; did you mean 'cpus'?",
  "c.yaml:4:13: nodes[0].memory: must be a size such as 512m or 2g, not '8q'",
  "c.yaml:5:15: nodes[0].failures: requires 'for'",
  "c.yaml:7:5: nodes[2].name: 'a' exists already; give each node a name of its own",
);
test(
  "mistakes of several services",
  refused,
  [
    "nodes: 1",
    "services:",
    "  web: {image: w, networks: [front]}",
    "  api: {image: a, deploy: {replica: 4}}",
    "  db: {image: d, x-behavior: {}}",
    "  q: {image: q, deploy: {placement: {constraints: [node.role == manager]}}}",
    "  z: {image: z, x-behaviour: {pul: 4s, start: {median: 5s, p99: 3s}, start-failure: 3}}",
  ].join("\n"),
  "c.yaml:3:30: services.web.networks.front: is not defined in 'networks'",
  "c.yaml:4:28: services.api.deploy.replica: is not supported in a Compose file; did you mean 'replicas'?",
  "c.yaml:5:18: services.db.x-behavior: unknown key; did you mean 'x-behaviour'?",
  "c.yaml:6:51: services.q.deploy.placement.constraints: 'node.role == manager' holds on no node: rehearsed nodes are workers with a name and labels; use a label of the nodes",
  "c.yaml:7:31: services.z.x-behaviour.pul: unknown key; did you mean 'pull'?",
  "c.yaml:7:65: services.z.x-behaviour.start.p99: must be at least the median",
  "c.yaml:7:85: services.z.x-behaviour.start-failure: must be a share from 0% to 100%, not '3'",
);
test(
  "a file that reads others",
  refused,
  "nodes: 1\nservices: {a: {extends: {service: b}}}",
  "c.yaml:2:25: services.a.extends: is not supported in a rehearsal; use the output of 'muster stack config'",
);

test(
  "two services with one published port",
  refused,
  "nodes: 1\nservices:\n  a: {ports: ['80:80']}\n  b: {ports: ['80:81']}",
  "c.yaml:4:14: services.b.ports: port '80' is already in use by service 'a' as an ingress port",
);
test(
  "names of services, networks and nodes that differ only in case",
  refused,
  "nodes: [{name: n}, {name: N}]\nnetworks:\n  a: {}\n  A: {}\nservices:\n  web: {}\n  Web: {}",
  "c.yaml:1:20: nodes[1].name: 'N' exists already; give each node a name of its own",
  "c.yaml:4:3: networks.A: has the same name as 'a' for managers, which ignore case",
  "c.yaml:7:3: services.Web: has the same name as 'web' for managers, which ignore case",
);
test(
  "networks that managers do not create",
  refused,
  [
    "nodes: 1",
    "networks:",
    "  a: {ipam: {config: [{subnet: 10.1.0.0/16}]}}",
    "  b: {ipam: {config: [{subnet: 10.1.2.0/24}]}}",
    "  c: {ipam: {config: [{subnet: 10.1.0.0/33}]}}",
    "  d: {ipam: {config: [{subnet: 10.9.0.0/24, gateway: 10.2.0.1}]}}",
    "  e: {driver: weird}",
    "  f: {ipam: {driver: dhcp}}",
  ].join("\n"),
  "c.yaml:4:3: networks.b: network cannot be created: its subnet 10.1.2.0/24 overlaps with 10.1.0.0/16 of network a",
  "c.yaml:5:3: networks.c: ipam configuration: invalid subnet 10.1.0.0/33",
  "c.yaml:6:3: networks.d: ipam configuration: subnet 10.9.0.0/24 does not contain gateway 10.2.0.1",
  "c.yaml:7:3: networks.e: error during lookup of plugin weird",
  "c.yaml:8:3: networks.f: error during lookup of plugin dhcp",
);
test("a service of processes is one without an image", (t) => {
  const { services } = cluster("nodes: 1\nservices:\n  a: {command: sleep 9, x-muster: {driver: exec}}");
  t.is(services[0]?.spec.task?.container?.image, "process/a");
  const error = t.throws(() => cluster("nodes: 1\nservices:\n  a: {command: b, x-muster: {driver: rkt}}", "c.yaml"));
  t.is(error.message, "c.yaml:3:38: services.a.x-muster.driver: must be container or exec, not 'rkt'");
});

/** A scenario that does nothing, on a cluster with a mistake that only the whole shows. */
const unplaced = test.macro((t, text: string, steps: string, ...lines: readonly string[]) => {
  const plan = cluster(text, "c.yaml");
  const error = t.throws(() => readScenario(`duration: 1h\nsteps: ${steps}`, "s.yaml", plan, unset), {
    instanceOf: UserError,
  });
  t.deepEqual(error.message.split("\n"), lines);
});
const small =
  "nodes: [{name: n, cpus: 2, memory: 4g, labels: {rack: a, disk: hdd}}, {name: m, labels: {rack: b}}]\nservices:\n";
test(
  "services that no node can run",
  unplaced,
  [
    small,
    "  a: {deploy: {placement: {constraints: [node.labels.rack == c]}}}",
    "  b: {deploy: {placement: {constraints: [node.labels.rack == b, node.labels.disk == hdd]}}}",
    "  c: {deploy: {placement: {constraints: [node.labels.rack == a]}, resources: {reservations: {cpus: '3', memory: 5g}}}}",
    "  d: {deploy: {placement: {constraints: [node.hostname == x]}}}",
    "  e: {deploy: {placement: {constraints: [node.platform.os == windows]}}}",
    "  f: {deploy: {mode: global, placement: {constraints: [node.labels.rack == c]}}}",
    "  g: {deploy: {placement: {constraints: [node.labels.rack == b]}, resources: {reservations: {cpus: '4'}}}}",
  ].join("\n"),
  "[]",
  "c.yaml:4:41: services.a.deploy.placement.constraints: 'node.labels.rack == c' holds on no node of the cluster, and on none that joins",
  "c.yaml:5:41: services.b.deploy.placement.constraints: hold together on no node of the cluster, and on none that joins",
  "c.yaml:6:93: services.c.deploy.resources.reservations: no node on which it may run has 3 CPUs (the most are 2) and 5g of memory (the most are 4g)",
  "c.yaml:7:41: services.d.deploy.placement.constraints: 'node.hostname == x' holds on no node of the cluster, and on none that joins",
  "c.yaml:8:41: services.e.deploy.placement.constraints: 'node.platform.os == windows' holds on no node of the cluster, and on none that joins",
);
test(
  "a cluster without nodes",
  unplaced,
  "nodes: []\nservices: {a: {}}",
  "[]",
  "c.yaml:2:15: services.a: can run nowhere: the cluster has no nodes",
);
test(
  "updates and deployments that no node can run",
  unplaced,
  `${small}  a: {}`,
  [
    "",
    "  - {at: 1s, update: {service: a, deploy: {placement: {constraints: [node.labels.rack == c]}}}}",
    "  - {at: 2s, deploy: {service: b, deploy: {resources: {reservations: {memory: 99g}}}}}",
    "  - {at: 3s, update: {service: a, image: a:3}}",
  ].join("\n"),
  "s.yaml:3:69: steps[0].update.deploy.placement.constraints: 'node.labels.rack == c' holds on no node of the cluster, and on none that joins",
  "s.yaml:4:70: steps[1].deploy.deploy.resources.reservations: no node on which it may run has 99g of memory (the most are 8g)",
);
test("a service may wait for a node that joins", (t) => {
  const plan = cluster(`${small}  a: {deploy: {placement: {constraints: [node.labels.rack == c]}}}`);
  const text = "steps: [{at: 5m, join: {name: late, labels: {rack: c}}}]";
  t.is(readScenario(text, "s.yaml", plan, unset).steps.length, 1);
});

test("a scenario has each action, in order of time", (t) => {
  const plan = scenario(`
description: All.
duration: 2h
steps:
  - {at: 20m, step-clocks: {nodes: worker-1, by: 1m}}
  - {at: 1m, deploy: {service: api, image: "api:1", deploy: {replicas: 2}}}
  - {at: 2m, scale: {service: web, replicas: 9}}
  - {at: 3m, update: {service: web, image: "web:2", x-behaviour: {start: 5s}}}
  - {at: 3m30s, rollback: {service: web}}
  - {at: 4m, remove: {service: api}}
  - {at: 5m, drain: {nodes: "worker-{1..2}"}}
  - {at: 6m, activate: {nodes: [worker-1, worker-2]}}
  - {at: 7m, join: {name: "new-{1..3}", labels: {rack: c}, over: 10s}}
  - {at: 8m, lose-nodes: {label: rack=a, for: 20m}}
  - {at: 9m, lose-nodes: {count: 2}}
  - {at: 10m, flap-nodes: {label: rack=c, up: 30s, down: 10s, for: 5m}}
  - {at: 11m, partition-nodes: {nodes: new-3, for: 1m}}
  - {at: 12m, partition-managers: {managers: [2, 1], for: 1m}}
  - {at: 13m, kill-leader: {for: 30s}}
  - {at: 13m, kill-leader: }
  - {at: 14m, slow-log: {delay: 200ms, for: 5m}}
  - {at: 15m, full-log: {for: 1m}}
  - {at: 16m, lose-nats: {for: 1m}}
  - {at: 17m, registry-outage: {for: 1m}}
  - {at: 18m, step-clocks: {manager: 2, by: -30s}}
`);
  t.is(plan.name, "s");
  t.is(plan.durationMs, 7_200_000);
  const actions = plan.steps.map(({ action }) => action);
  t.deepEqual(
    plan.steps.map(({ atMs }) => atMs),
    plan.steps.map(({ atMs }) => atMs).toSorted((a, b) => a - b),
  );
  const [, , update] = actions;
  t.true(update?.kind === "update");
  if (update?.kind === "update") {
    t.is(update.service.spec.replicated?.replicas, 9, "an update keeps the number that an earlier step has set");
    t.is(update.service.spec.task?.container?.image, "web:2");
    t.deepEqual(
      update.service.spec.task?.networks.map(({ target }) => target),
      ["front"],
    );
    t.is(update.service.behaviour.startFailure, 0.02, "an update keeps the behaviour that it does not name");
    t.is(update.service.behaviour.start.medianMs, 5_000);
  }
  t.deepEqual(actions.slice(3), [
    { kind: "rollback", service: "web" },
    { kind: "remove", service: "api" },
    { kind: "drain", nodes: { by: "name", names: ["worker-1", "worker-2"] } },
    { kind: "activate", nodes: { by: "name", names: ["worker-1", "worker-2"] } },
    {
      kind: "join",
      nodes: [1, 2, 3].map((at) => ({
        name: `new-${at}`,
        labels: { rack: "c" },
        nanoCpus: 4_000_000_000n,
        memoryBytes: 8n * 2n ** 30n,
        failures: null,
      })),
      overMs: 10_000,
    },
    { kind: "lose-nodes", nodes: { by: "label", label: "rack", value: "a" }, forMs: 1_200_000 },
    { kind: "lose-nodes", nodes: { by: "number", count: 2 }, forMs: null },
    {
      kind: "flap-nodes",
      nodes: { by: "label", label: "rack", value: "c" },
      upMs: 30_000,
      downMs: 10_000,
      forMs: 300_000,
    },
    { kind: "partition-nodes", nodes: { by: "name", names: ["new-3"] }, forMs: 60_000 },
    { kind: "partition-managers", managers: [1, 2], forMs: 60_000 },
    { kind: "kill-leader", forMs: 30_000 },
    { kind: "kill-leader", forMs: null },
    { kind: "slow-log", delayMs: 200, forMs: 300_000 },
    { kind: "full-log", forMs: 60_000 },
    { kind: "lose-nats", forMs: 60_000 },
    { kind: "registry-outage", forMs: 60_000 },
    { kind: "step-clocks", of: { manager: 2 }, byMs: -30_000 },
    { kind: "step-clocks", of: { by: "name", names: ["worker-1"] }, byMs: 60_000 },
  ]);
});

test("a scenario's variables come from the environment", (t) => {
  const text = "steps: [{at: 1m, remove: {service: '${SERVICE:-web}'}}]";
  t.deepEqual(scenario(text).steps[0]?.action, { kind: "remove", service: "web" });
  t.deepEqual(scenario(text, { SERVICE: "agent" }).steps[0]?.action, { kind: "remove", service: "agent" });
});

test("an update of the inside of tasks replaces them, although it is not rehearsed", (t) => {
  const { steps } = scenario(`steps:
  - {at: 1s, update: {service: web, environment: {A: hunter2}}}
  - {at: 2s, update: {service: web, environment: {A: hunter2}}}
  - {at: 3s, update: {service: web, command: serve --fast}}
  - {at: 4s, update: {service: web, deploy: {replicas: 9}}}
  - {at: 5s, scale: {service: web, replicas: 3}}
  - {at: 6s, update: {service: web, environment: {A: other}}}
  - {at: 7s, update: {service: web, image: "web:2"}}
`);
  const specs = steps.flatMap(({ action }) => (action.kind === "update" ? [action.service.spec] : []));
  t.deepEqual(
    specs.map(({ task }) => task?.forceUpdate),
    [1, 1, 2, 2, 3, 3],
  );
  for (const { task } of specs) t.deepEqual([task?.container?.env, task?.container?.args], [[], []]);
});
test("a rollback returns to the version before: a later update changes that one", (t) => {
  const { steps } = scenario(`
steps:
  - {at: 1m, update: {service: web, stop_grace_period: 1m}}
  - {at: 2m, rollback: {service: web}}
  - {at: 3m, update: {service: web, image: "web:3"}}
`);
  const last = steps.at(-1)?.action;
  t.true(last?.kind === "update" && last.service.spec.task?.container?.stopGracePeriod === null);
});

const stopped = test.macro((t, steps: string, ...lines: readonly string[]) => {
  const text = `duration: 1h\nsteps:\n  - ${steps}`;
  const error = t.throws(() => scenario(text), { instanceOf: UserError });
  t.deepEqual(error.message.split("\n"), lines);
});

test(
  "a step after the end",
  stopped,
  "{at: 2h, kill-leader: }",
  "s.yaml:3:10: steps[0].at: is after the end of the scenario; set a longer 'duration'",
);
test(
  "a step before the start",
  stopped,
  "{at: -5s, kill-leader: }",
  "s.yaml:3:10: steps[0].at: must be a duration such as 10s or 1m30s, not '-5s'",
);
test("a step without a time", stopped, "{kill-leader: }", "s.yaml:3:5: steps[0]: requires 'at'");
test(
  "an unknown action",
  stopped,
  "{at: 1s, kill-leadr: }",
  "s.yaml:3:14: steps[0].kill-leadr: unknown key; did you mean 'kill-leader'?",
);
test(
  "a service that is not there",
  stopped,
  "{at: 1s, remove: {service: wep}}",
  "s.yaml:3:32: steps[0].remove.service: no service 'wep' at this time; did you mean 'web'?",
);
test(
  "a service that has been removed",
  stopped,
  "{at: 1s, remove: {service: web}}\n  - {at: 2s, scale: {service: web, replicas: 2}}",
  "s.yaml:4:31: steps[1].scale.service: no service 'web' at this time; the services are agent",
);
test(
  "a service that is there already",
  stopped,
  "{at: 1s, deploy: {service: web, image: w}}",
  "s.yaml:3:32: steps[0].deploy.service: 'web' exists already; use 'update'",
);
test(
  "a key of an update that Compose lacks",
  stopped,
  "{at: 1s, update: {service: web, images: w}}",
  "s.yaml:3:37: steps[0].update.images: is not supported in a Compose file; did you mean 'image'?",
);
test(
  "an update to an invalid spec",
  stopped,
  "{at: 1s, update: {service: web, image: 'W W'}}",
  's.yaml:3:22: steps[0].update: ContainerSpec: "W W" is not a valid repository/tag',
);
test(
  "a rollback without an earlier version",
  stopped,
  "{at: 1s, rollback: {service: web}}",
  "s.yaml:3:34: steps[0].rollback.service: 'web' has no earlier version at this time; update it first",
);
test(
  "a global service that is scaled",
  stopped,
  "{at: 1s, scale: {service: agent, replicas: 2}}",
  "s.yaml:3:31: steps[0].scale.service: 'agent' runs on every node; only replicated services can be scaled",
);
test(
  "a node that is not there",
  stopped,
  "{at: 1s, drain: {nodes: 'worker-{1..5}'}}",
  "s.yaml:3:29: steps[0].drain.nodes: no node 'worker-5' at this time; did you mean 'worker-1'?",
);
test(
  "a node that joins later",
  stopped,
  "{at: 1s, drain: {nodes: late}}\n  - {at: 2s, join: {name: late}}",
  "s.yaml:3:29: steps[0].drain.nodes: no node 'late' at this time; name nodes of the cluster",
);
test(
  "a name that is taken",
  stopped,
  "{at: 1s, join: {name: worker-1}}",
  "s.yaml:3:20: steps[0].join.name: 'worker-1' exists already; give each node a name of its own",
);
test(
  "a label that no node has",
  stopped,
  "{at: 1s, lose-nodes: {label: rack=x}}",
  "s.yaml:3:34: steps[0].lose-nodes.label: no node has the label 'rack' with the value 'x'; its values are 'a' or 'b'",
);
test(
  "two ways to choose nodes",
  stopped,
  "{at: 1s, lose-nodes: {label: rack=a, count: 1}}",
  "s.yaml:3:26: steps[0].lose-nodes: has label and count; keep one of them",
);
test(
  "more nodes than there are",
  stopped,
  "{at: 1s, lose-nodes: {count: 5}}",
  "s.yaml:3:34: steps[0].lose-nodes.count: must be a whole number from 1 to 4, not '5'",
);
test(
  "a manager that is not there",
  stopped,
  "{at: 1s, partition-managers: {managers: [1, 4], for: 1m}}",
  "s.yaml:3:49: steps[0].partition-managers.managers[1]: must be the number of a manager, from 1 to 3, not '4'",
);
test(
  "a published port that is in use",
  stopped,
  "{at: 1s, deploy: {service: b, ports: ['80:1']}}\n  - {at: 2s, update: {service: agent, ports: ['80:2']}}",
  "s.yaml:3:42: steps[0].deploy.ports: port '80' is already in use by service 'web' as an ingress port",
  "s.yaml:4:46: steps[1].update.ports: port '80' is already in use by service 'web' as an ingress port",
);
test("a published port that is free again", (t) => {
  const steps = "steps:\n  - {at: 1s, remove: {service: web}}\n  - {at: 2s, deploy: {service: b, ports: ['80:1']}}";
  t.is(scenario(steps).steps.length, 2);
});
test(
  "a service that differs from another only in case",
  stopped,
  "{at: 1s, deploy: {service: WEB}}",
  "s.yaml:3:32: steps[0].deploy.service: 'web' exists already, and managers ignore case",
);
test(
  "another mode of a service",
  stopped,
  "{at: 1s, update: {service: web, deploy: {mode: global}}}",
  "s.yaml:3:52: steps[0].update.deploy.mode: must stay 'replicated': managers change no service's mode; remove it, and deploy it again",
);
test(
  "nodes that join after the end",
  stopped,
  "{at: 59m, join: {name: x, count: 9, over: 2m}}",
  "s.yaml:3:47: steps[0].join.over: is after the end of the scenario; set a longer 'duration'",
);
test(
  "a node that joins under the name of another, in another case",
  stopped,
  "{at: 1s, join: {name: Worker-1}}",
  "s.yaml:3:20: steps[0].join.name: 'Worker-1' exists already; give each node a name of its own",
);
test("a fault without an end", stopped, "{at: 1s, full-log: }", "s.yaml:3:24: steps[0].full-log: requires 'for'");
test(
  "two actions in one step",
  stopped,
  "{at: 1s, kill-leader: , full-log: {for: 1s}}",
  "s.yaml:3:5: steps[0]: has kill-leader and full-log; give each step exactly one of deploy, scale, update, rollback, remove, drain, activate, join, lose-nodes, flap-nodes, partition-nodes, partition-managers, kill-leader, slow-log, full-log, lose-nats, registry-outage or step-clocks",
);

test("each ready scenario has a description and works on the sample cluster, and on another with its variables", (t) => {
  const sample = cluster(sampleCluster().text);
  const other = cluster("nodes: [{name: 'm{1..3}', labels: {zone: x}}]\nservices: {blog: {deploy: {replicas: 2}}}");
  const variables = new Map(Object.entries({ SERVICE: "blog", LABEL: "zone=x" }));
  t.true(readyScenarios().length >= 8);
  for (const name of readyScenarios()) {
    t.regex(readyDescription(name), /^[A-Z].*\.$/);
    const { path, text } = readyScenario(name);
    const plan = readScenario(text, path, sample, unset);
    t.is(plan.name, name);
    t.true(plan.steps.length > 0);
    t.is(readScenario(text, path, other, { get: (key) => variables.get(key) }).steps.length, plan.steps.length);
  }
});

/** Values of any kind, among them those of the files. */
const words = [
  "web",
  "web:2",
  "worker-1",
  "worker-{1..3}",
  "worker-{1..99999999999}",
  "rack=a",
  "5m",
  "-5m",
  "1e9d",
  "2%",
  "0",
  "$X",
  "${",
  "8g",
  "__proto__",
  "constructor",
  "node.role == manager",
  "front",
  "default",
  "80:80",
  "",
];
const keys = [
  "managers",
  "nodes",
  "name",
  "count",
  "cpus",
  "memory",
  "labels",
  "failures",
  "every",
  "for",
  "networks",
  "services",
  "web",
  "image",
  "deploy",
  "replicas",
  "placement",
  "constraints",
  "ports",
  "x-behaviour",
  "pull",
  "start",
  "median",
  "p99",
  "life",
  "start-failure",
  "run",
  "run-failure",
  "max_concurrent",
  "x-muster",
  "duration",
  "steps",
  "at",
  "update",
  "service",
  "scale",
  "join",
  "over",
  "drain",
  "label",
  "lose-nodes",
  "step-clocks",
  "by",
  "manager",
  "kill-leader",
  "rollback",
  "__proto__",
  "toString",
  "x-y",
  "front",
  "healthcheck",
  "test",
];
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "medium", withCrossShrink: true },
    fc.constantFrom<unknown>(...words, null, true, 0, 1, 3, -1, 1.5, 1e300),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom(...keys), tie("value"), { maxKeys: 5 }),
  ),
}));

/** A right file in which some values are replaced. */
function damaged(right: unknown, path: readonly number[], by: unknown): unknown {
  const [first, ...rest] = path;
  if (first === undefined || typeof right !== "object" || right === null) return by;
  const entries = Object.entries(right);
  if (entries.length === 0) return by;
  const [key] = entries[first % entries.length] as [string, unknown];
  if (Array.isArray(right)) return right.map((each, at) => (String(at) === key ? damaged(each, rest, by) : each));
  return Object.fromEntries(entries.map(([name, each]) => [name, name === key ? damaged(each, rest, by) : each]));
}

test("a job has the length of its runs and the share that fails, or the defaults; it is written and read back", (t) => {
  const text = `
nodes: 2
services:
  import:
    deploy: {mode: replicated-job, replicas: 6, labels: {muster.schedule.cron: "0 3 * * *"}}
    x-muster: {max_concurrent: 2}
    x-behaviour: {run: {median: 2m, p99: 10m}, run-failure: 5%, start-failure: 1%}
  scan: {deploy: {mode: global-job}}
  copy: {deploy: {mode: replicated-job}, x-behaviour: {run: 30s}}
`;
  const plan = cluster(text);
  const [imported, scan, copy] = plan.services;
  t.like(imported?.spec.replicatedJob, { maxConcurrent: 2, totalCompletions: 6 });
  t.deepEqual(imported?.behaviour.run, { length: { medianMs: 120_000, p99Ms: 600_000 }, failure: 0.05 });
  t.deepEqual(scan?.behaviour.run, runDefaults);
  t.deepEqual(copy?.behaviour.run, { length: { medianMs: 30_000, p99Ms: 30_000 }, failure: 0 });
  t.deepEqual(cluster(writeCluster(plan, [])), plan);
});

test("behaviour of jobs is for jobs only, and that of services for services", (t) => {
  const text = `
nodes: 2
services:
  import: {deploy: {mode: replicated-job}, x-behaviour: {life: 3d}}
  web: {x-behaviour: {run: 5m, run-failure: 1%}}
  one: {x-muster: {max_concurrent: 2}}
`;
  const mistakes = [
    "cluster.yaml:4:64: services.import.x-behaviour.life: cannot be used with a job; use 'run' and 'run-failure'",
    "cluster.yaml:5:28: services.web.x-behaviour.run: is only for jobs (deploy.mode replicated-job or global-job)",
    "cluster.yaml:5:45: services.web.x-behaviour.run-failure: is only for jobs (deploy.mode replicated-job or global-job)",
    "cluster.yaml:6:36: services.one.x-muster.max_concurrent: can only be used with mode replicated-job",
  ];
  t.is(
    mistakesIn(() => cluster(text)),
    mistakes.join("\n"),
  );
});

function mistakesIn(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  return "";
}

const rightCluster = {
  managers: 3,
  nodes: [
    {
      name: "worker-{1..4}",
      cpus: 4,
      memory: "8g",
      labels: { rack: ["a", "b"] },
      failures: { every: "30d", for: "1m" },
    },
  ],
  networks: { front: {} },
  services: {
    web: {
      image: "web:1",
      networks: ["front"],
      ports: ["80:80"],
      healthcheck: { test: "true", interval: "5s" },
      deploy: { replicas: 2, placement: { constraints: ["node.labels.rack == a"] }, update_config: { delay: "1s" } },
      "x-behaviour": { pull: { median: "1s", p99: "2s" }, start: "1s", "start-failure": "2%", life: "3d" },
    },
  },
};
const rightScenario = {
  duration: "2h",
  steps: [
    { at: "1m", update: { service: "web", image: "web:2" } },
    { at: "2m", "lose-nodes": { label: "rack=a", for: "1m" } },
    { at: "3m", join: { name: "new-{1..3}", over: "1m" } },
    { at: "4m", drain: { nodes: ["new-1"] } },
    { at: "5m", "step-clocks": { manager: 1, by: "-1s" } },
    { at: "6m", rollback: { service: "web" } },
  ],
};
const damage = fc.tuple(fc.array(fc.nat({ max: 6 }), { minLength: 1, maxLength: 6 }), value);

function readsOrRefuses(read: () => unknown): void {
  try {
    read();
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    for (const line of error.message.split("\n")) {
      if (!/^(?:f\.yaml:\d+:\d+: |and \d+ more mistakes$)/.test(line))
        throw new Error(`without a place: ${line}`, { cause: error });
    }
  }
}

test("any cluster is read or refused with the places of its mistakes", (t) => {
  fc.assert(
    fc.property(fc.array(damage, { maxLength: 3 }), (damages) => {
      const file = damages.reduce((each, [path, by]) => damaged(each, path, by), rightCluster as unknown);
      readsOrRefuses(() => cluster(yamlText(file), "f.yaml"));
    }),
    { numRuns: 1_000 },
  );
  t.pass();
});

test("any scenario is read or refused with the places of its mistakes", (t) => {
  const plan = cluster(yamlText(rightCluster));
  fc.assert(
    fc.property(fc.array(damage, { maxLength: 3 }), (damages) => {
      const file = damages.reduce((each, [path, by]) => damaged(each, path, by), rightScenario as unknown);
      readsOrRefuses(() => readScenario(yamlText(file), "f.yaml", plan, unset));
    }),
    { numRuns: 1_000 },
  );
  t.pass();
});

test("any text is read or refused", (t) => {
  const part = fc.constantFrom(
    "a",
    ":",
    " ",
    "\n",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "!!str ",
    "|",
    "#",
    '"',
    "nodes: 1",
    "? ",
    "\t",
    "---\n",
    "<<: ",
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 20 }), (parts) => readsOrRefuses(() => cluster(parts.join(""), "f.yaml"))),
    { numRuns: 1_000 },
  );
  t.pass();
});

/** Plans, as read from files that use every key. */
const label = fc.constantFrom("a", "b", "$x", "1", "true", "", "é: #");
const time = fc.integer({ min: 1, max: 10_000_000 }).map((ms) => `${ms}ms`);
const drawn = fc.oneof(
  time,
  fc.tuple(fc.nat({ max: 9_999 }), fc.nat({ max: 9_999 })).map(([a, b]) => ({ median: `${a}ms`, p99: `${a + b}ms` })),
);
const rollout = fc.record(
  {
    parallelism: fc.nat({ max: 9 }),
    delay: time,
    monitor: time,
    failure_action: fc.constantFrom("pause", "continue"),
    order: fc.constantFrom("start-first", "stop-first"),
    max_failure_ratio: fc.double({ min: 0, max: 1, noNaN: true }).map((share) => Number(share.toFixed(6))),
  },
  { requiredKeys: [] },
);
const amounts = fc.record(
  { cpus: fc.constantFrom(0.25, 1, 3.5), memory: fc.constantFrom("64m", "1g", 123_456_789) },
  { requiredKeys: [] },
);
const mode = fc.oneof(
  fc.record({ replicas: fc.nat({ max: 50 }) }),
  fc.constant({ mode: "global" }),
  fc.record({ mode: fc.constant("replicated-job"), replicas: fc.integer({ min: 1, max: 5 }) }),
  fc.constant({ mode: "global-job" }),
);
const aService = fc.record(
  {
    image: fc.constantFrom("web:1", "registry.example/a/b@sha256:" + "0".repeat(64)),
    networks: fc.subarray(["front", "back"]),
    ports: fc.uniqueArray(
      fc.record({
        target: fc.integer({ min: 1, max: 99 }),
        published: fc.integer({ min: 1, max: 99 }).map(String),
        protocol: fc.constantFrom("tcp", "udp"),
        mode: fc.constantFrom("host", "ingress"),
      }),
      { maxLength: 3, selector: ({ published }) => published },
    ),
    stop_grace_period: time,
    healthcheck: fc.record({ test: fc.constant(["CMD", "x"]), interval: time, retries: fc.nat({ max: 5 }) }),
    update: fc.option(rollout, { nil: undefined }),
    rollback: fc.option(rollout, { nil: undefined }),
    restart: fc.option(
      fc.record(
        {
          condition: fc.constantFrom("none", "on-failure", "any"),
          delay: time,
          max_attempts: fc.nat({ max: 4 }),
          window: time,
        },
        { requiredKeys: ["condition"] },
      ),
      { nil: undefined },
    ),
    limits: fc.option(amounts, { nil: undefined }),
    reservations: fc.option(amounts, { nil: undefined }),
    mode,
    spread: fc.subarray(["node.labels.rack", "node.labels.zone"]),
    behaviour: fc.record(
      {
        pull: drawn,
        start: drawn,
        stop: drawn,
        "start-failure": fc.constantFrom("0%", "2.5%", "100%", 0.001),
        life: fc.oneof(
          fc.constant("never"),
          fc.integer({ min: 1, max: 400 }).map((days) => `${days}d`),
        ),
        run: drawn,
        "run-failure": fc.constantFrom("0%", "2.5%", 1),
      },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: ["mode", "spread"] },
);

interface AService {
  readonly mode: Readonly<Record<string, unknown>>;
  readonly update?: unknown;
  readonly rollback?: unknown;
  readonly restart?: unknown;
  readonly limits?: unknown;
  readonly reservations?: unknown;
  readonly spread: readonly string[];
  readonly behaviour?: Readonly<Record<string, unknown>>;
}

function composed(
  name: string,
  { mode: how, update, rollback, restart, limits, reservations, spread, behaviour, ...rest }: AService,
): readonly [string, unknown] {
  const isJob = String(how["mode"]).endsWith("-job");
  const others = isJob ? ["life"] : ["run", "run-failure"];
  const own = Object.entries(behaviour ?? {}).filter(([key]) => !others.includes(key));
  return [
    name,
    {
      ...rest,
      deploy: {
        ...how,
        ...(isJob ? {} : { update_config: update }),
        rollback_config: rollback,
        restart_policy: restart,
        resources: { limits, reservations },
        placement: {
          constraints: spread.map((key) => `${key} != a`),
          preferences: spread.map((key) => ({ spread: key })),
        },
      },
      ...(behaviour === undefined ? {} : { "x-behaviour": Object.fromEntries(own) }),
    },
  ];
}

const aCluster = fc
  .record({
    managers: fc.integer({ min: 1, max: 9 }),
    nodes: fc
      .array(
        fc.record({
          name: fc.constantFrom("{1..3}", "-{08..11}", "-x", "1", "9", "{2..2}"),
          cpus: fc.constantFrom(1, 2.5),
          memory: fc.constantFrom("1g", 1_000_000),
          labels: fc.dictionary(
            fc.constantFrom("rack", "zone"),
            fc.oneof(label, fc.array(label, { minLength: 1, maxLength: 3 })),
          ),
          failures: fc.option(fc.record({ every: fc.constantFrom("30d", "3h"), for: fc.constant("90s") }), {
            nil: undefined,
          }),
        }),
        { maxLength: 4 },
      )
      .map((groups) => groups.map((group, at) => ({ ...group, name: `${"abcd"[at]}${group.name}` }))),
    services: fc.array(aService, { maxLength: 3 }),
  })
  .map(({ services, ...rest }) => ({
    ...rest,
    networks: {
      front: { driver_opts: { a: "$" }, internal: true },
      back: { ipam: { config: [{ subnet: "10.1.0.0/16" }] } },
    },
    services: Object.fromEntries(services.map((each, at) => composed(`s${at}`, withOwnPorts(each, at)))),
  }));

/** No two services publish the same port. */
function withOwnPorts<Service extends { readonly ports?: readonly { readonly published: string }[] }>(
  service: Service,
  at: number,
): Service {
  const ports = service.ports?.map((port) => ({ ...port, published: String(Number(port.published) + 100 * at) }));
  return { ...service, ...(ports === undefined ? {} : { ports }) };
}

test("a plan that is written is read back unchanged", (t) => {
  fc.assert(
    fc.property(aCluster, (file) => {
      const plan = cluster(yamlText(file).replaceAll("$", "$$$$"));
      const written = writeCluster(plan, ["From a cluster."]);
      t.deepEqual(cluster(written), plan);
    }),
    { numRuns: 200 },
  );
});

test("a written series of nodes is one group", (t) => {
  const text = writeCluster(cluster("nodes: [{name: 'w{8..120}'}, {name: 'v{001..003}'}, {name: x7}]"));
  t.deepEqual(
    [...text.matchAll(/name: (.*)/g)].map(([, name]) => name),
    ["w{8..120}", "v{001..003}", "x7"],
  );
});
