/** Requests about services. */
import { base64, group, labels, step, type Json, type Step, type StepGroup } from "./control-side.ts";

/** Hostname templates that no task could expand. */
const refusedTemplates: readonly string[] = [
  "{{.Nope}}",
  "{{.service.Name}}",
  "{{.Service.Nope}}",
  "{{.Node.Nope}}",
  "{{.Node.Platform.Nope}}",
  "{{.Node.Platform.OS.Nope}}",
  "{{.Task.Nope}}",
  "a\nb-{{.Nope}}",
  "{{print .Service.Nope}}",
  "{{with .Service}}{{.Nope}}{{end}}",
  "{{(.Service).Nope}}",
  '{{join .Nope "x"}}',
  '{{.Service.Name "x"}}',
  "{{len 3}}",
  "{{range .Service.Name}}x{{end}}",
  "{{nil}}",
  "{{",
  "{{.Task.Slot",
  "{{.Service.Name}",
  "{{/* x",
  '{{"x}}',
  "{{$x}}",
  "{{end}}",
  "{{if}}x{{end}}",
  "{{if .Service.Name}}x",
  "{{nofunc .Service.Name}}",
  '{{secret "x"}}',
  '{{config "x"}}',
  '{{env "X"}}',
  "{{1 | 2}}",
  "{{.Service.Name | len | nope}}",
];

export const serviceSteps: readonly StepGroup[] = [
  group("services: updates, rollbacks and filters", () => {
    const spec = (name: string, more: Json = {}, task: Json = {}): Json => ({
      annotations: { name, labels },
      replicated: {},
      task: { container: { image: "bb:1" }, ...task },
      ...more,
    });
    const update = (name: string, wanted: Json, more: Json = {}, differs: Step["differs"] = null): Step =>
      step(
        "UpdateService",
        (side) => ({ serviceId: side.id(name), serviceVersion: side.version(name), spec: wanted, ...more }),
        differs,
      );
    const port = (publishedPort: number, publishMode = "INGRESS"): Json => ({
      endpoint: { ports: [{ targetPort: 80, publishedPort, publishMode }] },
    });
    const { replicated: _, ...unset } = spec("web");
    return [
      step("CreateService", { spec: spec("web") }),
      step("CreateService", { spec: spec("Web") }),
      step("CreateService", { spec: { ...spec("x"), task: {} } }),
      step("CreateService", { spec: unset }),
      step("CreateService", { spec: { ...unset, global: {}, annotations: { name: "all" } } }),
      step("CreateService", { spec: spec("gen", {}, { container: null, generic: { kind: "vm" } }) }),
      step("CreateService", {
        spec: spec(
          "gen",
          {},
          { container: null, generic: { kind: "qemu", payload: { typeUrl: "t", value: base64("v") } } },
        ),
      }),
      step("ListServices", {}),
      step("ListServices", { filters: { runtimes: ["container"] } }),
      step("ListServices", { filters: { runtimes: ["qemu"] } }),
      step("ListServices", { filters: { names: ["web"], labels: { team: "b" } } }),
      step("ListServices", { filters: { namePrefixes: ["w"], names: ["web"] } }),
      step("ListServices", (side) => ({ filters: { idPrefixes: [side.id("web").slice(0, 9)] } })),
      update("web", spec("other")),
      update("web", { ...unset, global: {} }),
      update("web", spec("web"), { rollback: "PREVIOUS" }),
      update("web", spec("web", {}, { forceUpdate: 1 })),
      step("GetService", (side) => ({ serviceId: side.id("web") })),
      step(
        "UpdateService",
        (side) => ({
          serviceId: side.id("web"),
          serviceVersion: { index: 1 },
          spec: spec("web", {}, { forceUpdate: 2 }),
        }),
        { stock: /^UNKNOWN update out of sequence$/, ours: /^ABORTED update out of sequence$/ },
      ),
      step("CreateService", { spec: spec("front", port(8080)) }),
      step("CreateService", { spec: spec("front2", port(8080)) }),
      step("CreateService", { spec: spec("front2", port(8080, "HOST")) }),
      step("CreateService", { spec: spec("bound", port(9090, "HOST")) }),
      step("CreateService", { spec: spec("bound2", port(9090, "HOST")) }),
      step(
        "CreateService",
        { spec: spec("bound3", port(9090)) },
        {
          stock:
            /^INVALID_ARGUMENT port '9090' is already in use by service 'bound2?' \(<bound2?>\) as a host-published port$/,
          ours: /^INVALID_ARGUMENT port '9090' is already in use by service 'bound' \(<bound>\) as a host-published port$/,
        },
      ),
      step("ListServiceStatuses", {}),
      step("ListTasks", { filters: { serviceIds: ["nobody"] } }),
      step("RemoveService", (side) => ({ serviceId: side.id("front") })),
      step("CreateService", { spec: spec("front2", port(8080, "HOST")) }),
    ];
  }),
  group("services: rejected requests", () => {
    const bad = (more: Json, differs: Step["differs"] = null): Step =>
      step(
        "CreateService",
        { spec: { annotations: { name: "bad" }, replicated: {}, task: { container: { image: "bb:1" } }, ...more } },
        differs,
      );
    const task = (more: Json, differs: Step["differs"] = null): Step =>
      bad({ task: { container: { image: "bb:1" }, ...more } }, differs);
    const container = (more: Json, differs: Step["differs"] = null): Step =>
      bad({ task: { container: { image: "bb:1", ...more } } }, differs);
    const better = (stock: RegExp, ours: RegExp): Step["differs"] => ({ stock, ours });
    const mount = (more: Json): Step => container({ mounts: [{ type: "VOLUME", ...more }] });
    const negative = { seconds: -1 };
    const { replicated: _, ...job } = { replicated: {}, replicatedJob: { maxConcurrent: 1, totalCompletions: 1 } };
    const noMode = { replicated: null };
    return [
      task({ resources: { limits: { nanoCpus: 999_999 } } }),
      task({ resources: { reservations: { nanoCpus: -5 } } }),
      task({ resources: { limits: { memoryBytes: 4_194_303 } } }),
      task({ resources: { reservations: { memoryBytes: 1 } } }),
      task({ restart: { delay: negative } }),
      task({ restart: { window: negative } }),
      task(
        { placement: { constraints: ["node.labels.zone"] } },
        better(/^UNKNOWN constraint expected/, /^INVALID_ARGUMENT constraint expected/),
      ),
      container({ secrets: [{ secretId: "x" }] }),
      container({ secrets: [{ secretId: "x", secretName: "y" }] }),
      container({ secrets: [{ secretId: "x", secretName: "y", file: {} }] }),
      container({
        secrets: [
          { secretId: "x", secretName: "y", file: { name: "f" } },
          { secretId: "z", secretName: "w", file: { name: "f" } },
        ],
      }),
      container({ configs: [{ configId: "x" }] }),
      container({ configs: [{ configId: "x", configName: "y" }] }),
      container({ configs: [{ configId: "x", configName: "y", file: {} }] }),
      container({ privileges: { credentialSpec: { config: "x" } } }),
      bad({ task: {} }),
      bad({ task: { attachment: { containerId: "x" } } }),
      bad({ task: { generic: { kind: "ab" } } }),
      bad({ task: { generic: { kind: "container" } } }),
      bad({ task: { generic: { kind: "abc" } } }),
      bad({ task: { generic: { kind: "abc", payload: {} } } }),
      bad({ task: { generic: { kind: "abc", payload: { type_url: "x" } } } }),
      container({ image: "" }),
      container({ image: "A B" }),
      container({ image: "UPPER" }),
      container({ mounts: [{ target: "/a" }, { target: "/a" }] }),
      container({ healthcheck: { interval: { nanos: 1 } } }),
      container({ healthcheck: { timeout: { nanos: 1 } } }),
      container({ healthcheck: { startPeriod: { nanos: 1 } } }),
      container({ healthcheck: { retries: -1 } }),
      ...refusedTemplates.map((hostname) => container({ hostname })),
      container({ env: ["A=b", "A={{.Nothing}} {{.Task.Nope}}"] }),
      container({ env: ['A={{secret "x"}}'], hostname: "{{" }),
      container({ env: ["{{.Nope}}", "{{.Nope}}=b"], hostname: "{{" }),
      mount({ source: "{{.Nope}}", target: "/x" }),
      mount({ source: "a", target: "/x/{{.Node.Nope}}" }),
      mount({ source: "a", target: "/x", volumeOptions: { labels: { a: "{{.Nope}}" } } }),
      mount({
        source: "a",
        target: "/x",
        volumeOptions: { driverConfig: { name: "d", options: { a: "{{.Nope}}" } } },
      }),
      bad({ replicated: { replicas: -1 } }),
      bad({ ...noMode, ...job, update: {} }),
      bad({ ...noMode, replicatedJob: { maxConcurrent: -1 } }),
      bad({ ...noMode, replicatedJob: { totalCompletions: -1 } }),
      bad({ ...noMode, globalJob: {}, update: { parallelism: 1 } }),
      bad({ update: { delay: negative } }),
      bad({ update: { monitor: negative } }),
      bad({ update: { maxFailureRatio: 1.5 } }),
      bad({ update: { maxFailureRatio: -0.5 } }),
      bad({ endpoint: { mode: "DNSRR", ports: [{ targetPort: 80 }] } }),
      bad({
        endpoint: {
          ports: [
            { targetPort: 80, publishedPort: 80 },
            { targetPort: 81, publishedPort: 80 },
          ],
        },
      }),
      step("ListNetworks", { filters: { names: ["ingress"] } }),
      step("CreateService", (side) => ({
        spec: {
          annotations: { name: "bad" },
          replicated: {},
          task: { container: { image: "bb:1" }, networks: [{ target: side.id("ingress") }] },
        },
      })),
      bad({ annotations: { name: "" } }),
      bad({ annotations: { name: "a_" } }),
      bad({ annotations: { name: "a".repeat(64) } }),
      step("UpdateService", {}),
      step("ListServices", {}),
    ];
  }),
];
