// The plan of an import of a Swarm, before anything is done.
import test from "ava";
import { networkSpec, planOf, serviceSpec, type Present } from "../../cli/import/plan.ts";
import type { Listed, Swarm } from "../../cli/import/swarm.ts";

function listed(id: string, spec: Record<string, unknown>, object: Record<string, unknown> = {}): Listed {
  return { id, name: String(spec["Name"]), spec, object: { Spec: spec, ...object } };
}

function network(id: string, name: string, object: Record<string, unknown> = {}): Listed {
  const whole = { Id: id, Name: name, Driver: "overlay", ...object };
  return { id, name, spec: whole, object: whole };
}

const none: Present = { network: new Set(), config: new Set(), secret: new Set(), service: new Set() };

const swarm: Swarm = {
  networks: [
    network("n1", "back"),
    network("n2", "ingress", { Ingress: true }),
    network("n3", "odd", { Driver: "macvlan" }),
  ],
  configs: [listed("c1", { Name: "conf" })],
  secrets: [listed("s1", { Name: "word" }), listed("s2", { Name: "driven", Driver: { Name: "vault" } })],
  services: [
    listed("v1", { Name: "fine", TaskTemplate: { ContainerSpec: { Secrets: [{ SecretName: "driven" }] } } }),
    listed("v2", { Name: "needs", TaskTemplate: { ContainerSpec: { Secrets: [{ SecretName: "word" }] } } }),
    listed("v3", { Name: "old", Networks: [{ Target: "n3" }], TaskTemplate: { ContainerSpec: {} } }),
    listed("v4", { Name: "plugin", TaskTemplate: { Runtime: "plugin" } }),
  ],
};

const actions = (present: Present, files: readonly string[] = []): Readonly<Record<string, string>> =>
  Object.fromEntries(
    planOf(swarm, present, new Map(files.map((name) => [name, ""]))).map(({ does, from, kind }) => [
      `${kind} ${from.name}`,
      does,
    ]),
  );

test("IM2: an object that cannot be taken over blocks the services that use it", (t) => {
  t.deepEqual(actions(none), {
    "network back": "create",
    "network odd": "block",
    "config conf": "create",
    "secret word": "block",
    "secret driven": "create",
    "service fine": "create",
    "service needs": "block",
    "service old": "block",
    "service plugin": "block",
  });
});

test("a secret's file unblocks it; IM1: an object that the cluster has is left alone, and blocks nothing", (t) => {
  t.like(actions(none, ["word"]), { "secret word": "create", "service needs": "create" });
  const present = { ...none, secret: new Set(["word"]), network: new Set(["odd"]), service: new Set(["fine"]) };
  t.like(actions(present), {
    "secret word": "keep",
    "service needs": "create",
    "network odd": "keep",
    "service old": "create",
    "service fine": "keep",
  });
});

test("a service gets the new cluster's ids, its networks with the task, and the port that the Swarm chose", (t) => {
  const service = listed(
    "v",
    {
      Name: "web",
      Networks: [{ Target: "n1", Aliases: ["w"] }],
      TaskTemplate: { ContainerSpec: { Configs: [{ ConfigID: "c1", ConfigName: "conf" }] } },
      EndpointSpec: {
        Ports: [
          { Protocol: "tcp", TargetPort: 80 },
          { Protocol: "tcp", TargetPort: 81, PublishMode: "host" },
          { Protocol: "udp", TargetPort: 80, PublishedPort: 9 },
        ],
      },
    },
    {
      Endpoint: {
        Ports: [
          { Protocol: "udp", TargetPort: 80, PublishedPort: 9 },
          { Protocol: "tcp", TargetPort: 80, PublishedPort: 30_001 },
        ],
      },
    },
  );
  const ids = {
    network: new Map([["back", "N1"]]),
    config: new Map([["conf", "C1"]]),
    secret: new Map(),
    service: new Map(),
  };
  t.like(serviceSpec(service, ids, swarm), {
    Networks: [],
    TaskTemplate: {
      Networks: [{ Target: "N1", Aliases: ["w"] }],
      ContainerSpec: { Configs: [{ ConfigID: "C1", ConfigName: "conf" }] },
    },
    EndpointSpec: {
      Ports: [
        { Protocol: "tcp", TargetPort: 80, PublishedPort: 30_001 },
        { Protocol: "tcp", TargetPort: 81, PublishMode: "host" },
        { Protocol: "udp", TargetPort: 80, PublishedPort: 9 },
      ],
    },
  });
});

test("numbers that a Swarm's own allocator gave to a network are left out", (t) => {
  const options = { a: "b", "com.docker.network.driver.overlay.vxlanid_list": "4097" };
  t.deepEqual(networkSpec(network("n", "back", { Options: options }))["Options"], { a: "b" });
});
