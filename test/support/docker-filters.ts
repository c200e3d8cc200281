/** Lists of Docker's Engine API with each of their filters, and the objects that they are asked about. */
import type { EngineRequest } from "./docker-requests.ts";

type Filter = Readonly<Record<string, readonly string[]>>;

const unplaceable = { Constraints: ["node.labels.absent==true"] };

function service(name: string, rest: object, task: object = {}): object {
  const template = { ContainerSpec: { Image: "absent:1" }, Placement: unplaceable, ...task };
  return { Name: name, TaskTemplate: template, ...rest };
}

/** In this order. Tasks stay pending, so that both managers have the same. */
export const filteredObjects: readonly EngineRequest[] = (
  [
    ["/networks/create", { Name: "net-a", Driver: "overlay", Labels: { a: "b" } }],
    ["/networks/create", { Name: "net-ab", Driver: "overlay", Attachable: true, Labels: { a: "c", d: "" } }],
    ["/services/create", service("web", { Labels: { a: "b" }, Mode: { Replicated: { Replicas: 2 } } })],
    [
      "/services/create",
      service("web-two", { Labels: { a: "c", d: "" }, Mode: { Global: {} } }, { Networks: [{ Target: "net-ab" }] }),
    ],
    ["/services/create", service("job", { Mode: { ReplicatedJob: { MaxConcurrent: 1, TotalCompletions: 1 } } })],
    ["/secrets/create", { Name: "known", Data: "YQ==", Labels: { a: "b" } }],
    ["/secrets/create", { Name: "Known-two", Data: "YQ==", Labels: { a: "c" } }],
    ["/configs/create", { Name: "known", Data: "YQ==", Labels: { a: "b" } }],
    ["/configs/create", { Name: "Known-two", Data: "YQ==", Labels: { a: "c" } }],
  ] as const
).map(([path, body]) => ({ method: "POST", path: `/v1.41${path}`, body: JSON.stringify(body) }));

const common: readonly Filter[] = [
  {},
  { name: [] },
  { name: [""] },
  { name: ["web"] },
  { name: ["known"] },
  { name: ["KNOWN-"] },
  { name: ["two"] },
  { name: ["web", "job"] },
  { name: ["web$"] },
  { name: ["absent"] },
  { name: ["absent", "known"] },
  { id: ["absent"] },
  { id: [""] },
  { label: ["a"] },
  { label: ["a="] },
  { label: ["a=b"] },
  { label: ["a=b", "d"] },
  { label: ["d"] },
  { label: ["d="] },
  { label: ["=b"] },
  { name: ["known"], id: ["absent"] },
  { name: ["known"], label: ["a=c"] },
  { name: ["web"], label: ["a=c"] },
  { odd: ["a"] },
];

/** `{service}` and such are the ids of objects. */
export const filteredLists: Readonly<Record<string, readonly Filter[]>> = {
  "/services": [
    ...common,
    { mode: ["replicated"] },
    { mode: ["global", "replicated-job"] },
    { mode: ["global-job"] },
    { mode: ["odd"] },
    { mode: [""] },
    { runtime: ["container"] },
    { runtime: ["plugin"] },
    { runtime: [""] },
    { id: ["{service}"] },
  ],
  "/tasks": [
    ...common,
    { name: ["web.1"] },
    { name: ["eb.1"] },
    { service: ["web"] },
    { service: ["{service}"] },
    { service: ["web", "job"] },
    { service: ["absent"] },
    { service: [] },
    { service: ["web"], "desired-state": ["running"] },
    { "desired-state": ["running", "shutdown"] },
    { "desired-state": ["RUNNING"] },
    { "desired-state": ["accepted"] },
    { "desired-state": [""] },
    { "desired-state": ["odd"] },
    { node: ["self"] },
    { node: ["absent"] },
    { runtime: ["container"] },
    { runtime: ["attachment"] },
    { "_up-to-date": ["true"] },
    { "_up-to-date": ["true"], service: ["web"] },
  ],
  "/nodes": [
    ...common,
    { role: ["manager"] },
    { role: ["Manager", "worker"] },
    { role: ["worker"] },
    { role: ["odd"] },
    { role: [""] },
    { membership: ["accepted"] },
    { membership: ["pending"] },
    { membership: ["odd"] },
    { "node.label": ["absent"] },
    { "node.label": ["absent=a"] },
    { id: ["{node}"] },
  ],
  "/secrets": [
    ...common,
    { names: ["known"] },
    { names: ["know"] },
    { names: ["known"], name: ["Known-"] },
    { id: ["{secret}"] },
  ],
  "/configs": [...common, { names: ["known"] }, { id: ["{config}"] }, { id: ["{config}"], name: ["Known-"] }],
  "/networks": [
    ...common,
    { name: ["net-a"] },
    { name: ["et-a"] },
    { name: ["^net-a$"] },
    { name: ["net-a."] },
    { name: ["net-ab", "net-a"] },
    { id: ["{network}"] },
    { id: ["{network}", "absent"] },
    { driver: ["overlay"] },
    { driver: ["over"] },
    { driver: ["absent"] },
    { scope: ["swarm"] },
    { scope: ["swarm", "local"] },
    { scope: ["absent"] },
    { type: ["custom"] },
    { type: ["builtin"] },
    { type: ["builtin", "custom"] },
    { type: ["odd"] },
    { dangling: ["true"] },
    { dangling: ["1"] },
    { dangling: ["false"] },
    { dangling: ["0"] },
    { dangling: ["odd"] },
    { dangling: ["true", "false"] },
    { dangling: ["true"], name: ["net-a"] },
    { idOrName: ["net-a"] },
  ],
  // None exists: only what is refused.
  "/volumes": [
    ...common,
    { driver: ["absent"] },
    { dangling: ["true"] },
    { dangling: ["0"] },
    { dangling: ["1", "true"] },
    { dangling: ["odd"] },
    { dangling: [] },
  ],
  // No task has a container: only what is refused.
  "/containers/json": [
    ...common,
    { status: ["running", "created", "paused", "restarting", "removing", "dead", "exited"] },
    { status: ["odd"] },
    { status: [""] },
    { exited: ["0", "137"] },
    { exited: ["odd"] },
    { exited: [""] },
    { "is-task": ["true"] },
    { "is-task": ["1"] },
    { "is-task": ["odd"] },
    { "is-task": [] },
    { ancestor: ["absent:1"] },
    { network: ["net-a"] },
    { node: ["absent"] },
  ],
};
