// Control as JSON: objects that Juju lacks are requested as the muster command requests them.
import test from "ava";
import { objectsMax } from "../../edges/juju/facades/control.ts";
import type { Identity } from "../../edges/juju/facade.ts";
import { ControlService, Task } from "../../proto/gen/messages.ts";
import { workerNode } from "../support/control.ts";
import { failureOf, jsonWorld, type Reply } from "../support/json-world.ts";

const [reader, operator, admin] = (["read-only", "operator", "admin"] as const).map((role): Identity => ({
  kind: "user",
  name: role,
  role,
})) as [Identity, Identity, Identity];

type World = Awaited<ReturnType<typeof jsonWorld>>;

const asker =
  ({ connect }: World, identity: Identity, shape: "V0" | "V1" = "V1") =>
  (method: string, request: object): Promise<Reply> =>
    connect(shape, identity).ask({ type: "Muster", version: 1, request: "Control", params: { method, request } });

test("networks, secrets, configs, volumes, policies and whole specs are created, shown, changed and removed", async (t) => {
  const world = await jsonWorld(t);
  const { store } = world;
  const ask = asker(world, operator);
  const annotations = (name: string) => ({ name, labels: { team: "a" } });

  await ask("CreateNetwork", { spec: { annotations: annotations("net"), driverConfig: { name: "overlay" } } });
  t.is(store.byName("network", "net")?.spec?.annotations?.labels["team"], "a");

  const data = Buffer.from("tell nobody").toString("base64");
  await ask("CreateSecret", { spec: { annotations: annotations("key"), data } });
  t.is(Buffer.from(store.byName("secret", "key")?.spec?.data ?? []).toString(), "tell nobody");
  const { secrets } = (await asker(world, reader)("ListSecrets", {})) as { secrets: { spec: object; id: string }[] };
  t.deepEqual(
    secrets.map(({ spec }) => spec),
    [{ annotations: { name: "key", labels: { team: "a" } }, data: "" }],
    "without its content",
  );

  await ask("CreateConfig", { spec: { annotations: annotations("conf"), data } });
  const driver = { name: "csi" };
  const accessMode = { scope: "SINGLE_NODE", sharing: 0, mount: {} };
  await ask("CreateVolume", { spec: { annotations: annotations("vol"), driver, accessMode } });
  await ask("CreateExtension", { annotations: annotations("kind"), description: "x" });
  const payload = { type_url: "x", value: data };
  const { resource } = (await ask("CreateResource", { annotations: annotations("r"), kind: "kind", payload })) as {
    resource: { id: string; payload: object };
  };
  t.deepEqual(resource.payload, payload);

  const task = { container: { image: "bb:1", env: ["A=1"] } };
  const spec = { annotations: annotations("job"), task, replicatedJob: { maxConcurrent: 1, totalCompletions: 3 } };
  const { service } = (await ask("CreateService", { spec })) as {
    service: { id: string; meta: { version: { index: number } }; spec: object };
  };
  t.like(service.spec, { replicatedJob: { totalCompletions: 3 } });
  const changed = { ...spec, task: { ...task, container: { image: "bb:2" } } };
  const update = { serviceId: service.id, serviceVersion: service.meta.version, spec: changed };
  await ask("UpdateService", update);
  t.is(store.get("service", service.id)?.spec?.task?.container?.image, "bb:2");
  t.like(
    await failureOf(() => ask("UpdateService", update)),
    { message: "update out of sequence" },
    "with an old version",
  );
  await ask("RemoveService", { serviceId: service.id });
  t.is(store.byName("service", "job"), undefined);
});

test("MC1: a misspelt field or a wrong type is rejected with its position, and nothing is done", async (t) => {
  const world = await jsonWorld(t);
  const ask = asker(world, operator);
  const before = world.manager.proposals.length;
  for (const [request, where] of [
    [{ spec: { annotations: { name: "x" }, taks: {} } }, "request.spec.taks"],
    [{ spec: { annotations: { name: 7 } } }, "request.spec.annotations.name"],
    [{ spec: { annotations: { name: {} } } }, "request.spec.annotations.name"],
    [{ spec: { replicated: { replicas: "3" } } }, "request.spec.replicated.replicas"],
    [{ spec: { replicated: { replicas: -1 } } }, "request.spec.replicated.replicas"],
    [{ spec: { replicated: { replicas: 1.5 } } }, "request.spec.replicated.replicas"],
    [{ spec: { update: { order: "SIDEWAYS" } } }, "request.spec.update.order"],
    [{ __proto__x: 1 }, "request.__proto__x"],
  ] as const) {
    const told = { message: `${where} is unknown or has the wrong type`, code: "bad request" };
    t.deepEqual(await failureOf(() => ask("CreateService", request)), told);
  }
  for (const request of [{ spec: 7 }, { spec: [] }, { spec: { task: { container: { env: "A=1" } } } }])
    t.is((await failureOf(() => ask("CreateService", request)))?.code, "bad request");
  t.is((await failureOf(() => ask("CreateService", { spec: null })))?.code, "bad request", "as Control rejects it");
  t.is((await failureOf(() => ask("Nothing", {})))?.code, "not implemented");
  t.is((await failureOf(() => ask("constructor", {})))?.code, "not implemented");
  t.is((await failureOf(() => ask("GetService", { serviceId: "nobody" })))?.code, "not found");
  t.is(world.manager.proposals.length, before);
});

test("each method of Control needs a role, and a reader changes nothing", async (t) => {
  const world = await jsonWorld(t);
  world.manager.seed("node", workerNode("n1"));
  const allowed = async (identity: Identity): Promise<readonly string[]> => {
    const found: string[] = [];
    for (const name of Object.keys(ControlService.methods))
      if ((await failureOf(() => asker(world, identity)(name, {})))?.code !== "unauthorized access") found.push(name);
    return found;
  };
  const looks = (await allowed(reader)).filter((name) => !/^(?:Get|List)/.test(name));
  t.deepEqual(looks, []);
  const [some, all] = [await allowed(operator), await allowed(admin)];
  const rest = all.filter((name) => !some.includes(name));
  t.deepEqual(rest.toSorted(), ["GetCluster", "ListClusters", "RemoveNode", "UpdateCluster", "UpdateNode"]);
  t.deepEqual(all, Object.keys(ControlService.methods));
});

test("the older shape has it too; an answer of too many objects is rejected; changes are recorded under the caller's name", async (t) => {
  const world = await jsonWorld(t);
  const { manager } = world;
  await asker(world, operator, "V0")("CreateNetwork", { spec: { annotations: { name: "net" } } });
  t.like(manager.proposals.at(-1)?.caller, { user: "user-operator", method: "Muster.Control CreateNetwork" });
  manager.seed("task", ...Array.from({ length: objectsMax + 1 }, (_, at) => Task.create({ id: `t${at}` })));
  const ask = asker(world, reader);
  t.is((await failureOf(() => ask("ListTasks", {})))?.code, "quota limit exceeded");
  t.like(await ask("ListTasks", { filters: { idPrefixes: ["t1999"] } }), { tasks: [{ id: "t1999" }] });
});
