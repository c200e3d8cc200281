// A user with the role `read-only` sees every object, and no value that may be a password.
import test from "ava";
import type { Identity } from "../../edges/juju/facade.ts";
import type { Shape } from "../../edges/juju/shape.ts";
import { DriverSpec, ExecSpec } from "../../proto/gen/messages.ts";
import { jsonWorld, type Asked } from "../support/json-world.ts";

const [reader, operator] = (["read-only", "operator"] as const).map((role): Identity => ({
  kind: "user",
  name: role,
  role,
})) as [Identity, Identity];

/** Found in whatever encoding an answer contains it. */
const canary = "tell-nobody";
const encodings = [canary, ...[0, 1, 2].map((at) => base64Core(canary, at))];

/**
 * Middle of the base64 of a text that begins `shift` bytes into a group of three: the ends depend on the neighbouring bytes.
 */
function base64Core(text: string, shift: number): string {
  const padded = Buffer.from("x".repeat(shift) + text).toString("base64");
  return padded.slice(4, padded.length - 4);
}

const holdsCanary = (answer: unknown): boolean => {
  const text = JSON.stringify(answer);
  return encodings.some((each) => text.includes(each));
};

const env = [`PASSWORD=${canary}`];
const driver = { name: "d", options: { token: canary } };

const tasks: Readonly<Record<string, object>> = {
  container: {
    container: {
      image: "bb:1",
      env,
      pullOptions: { registryAuth: Buffer.from(canary).toString("base64") },
      mounts: [{ type: "VOLUME", target: "/d", volumeOptions: { driverConfig: driver } }],
    },
    logDriver: driver,
  },
  process: {
    generic: {
      kind: "exec",
      payload: {
        type_url: "muster.v1.ExecSpec",
        value: Buffer.from(ExecSpec.encode(ExecSpec.create({ command: "sh", env }))).toString("base64"),
      },
    },
  },
  plugin: {
    generic: {
      kind: "podman",
      payload: {
        type_url: "type.googleapis.com/muster.v1.DriverSpec",
        value: Buffer.from(
          DriverSpec.encode(DriverSpec.create({ env, config: JSON.stringify({ auth: { password: canary } }) })),
        ).toString("base64"),
      },
    },
  },
  foreign: {
    generic: {
      kind: "another",
      payload: { type_url: "example.com/Spec", value: Buffer.from(canary).toString("base64") },
    },
  },
};

const control = (method: string, request: object): Asked => ({
  type: "Muster",
  version: 1,
  request: "Control",
  params: { method, request },
});

async function scene(t: Parameters<typeof jsonWorld>[0]) {
  const world = await jsonWorld(t);
  const ask = (identity: Identity, asked: Asked, shape: Shape = "V1") => world.connect(shape, identity).ask(asked);
  for (const [name, task] of Object.entries(tasks)) {
    await ask(
      operator,
      control("CreateService", { spec: { annotations: { name }, task, replicated: { replicas: 1 } } }),
    );
  }
  await world.settle();
  return { ...world, ask };
}

interface ShownTask {
  readonly generic?: { readonly payload: { readonly value: string } };
}

const reads: readonly (readonly [string, Asked, Shape])[] = [
  ["Control GetService", control("GetService", { serviceId: "container" }), "V1"],
  ["Application.Get", { type: "Application", version: 20, request: "Get", params: { application: "container" } }, "V1"],
  [
    "Application.GetConfig",
    {
      type: "Application",
      version: 20,
      request: "GetConfig",
      params: { entities: [{ tag: "application-container" }] },
    },
    "V1",
  ],
  ["Client.ServiceGet", { type: "Client", request: "ServiceGet", params: { ServiceName: "container" } }, "V0"],
  ["Service.Get", { type: "Service", id: "container", request: "Get" }, "V0"],
];

for (const [what, asked, shape] of reads) {
  test(`${what} shows values to an operator and only names to a reader`, async (t) => {
    const { ask, store } = await scene(t);
    const named = JSON.parse(
      JSON.stringify(asked).replace(
        `"serviceId":"container"`,
        `"serviceId":"${store.byName("service", "container")?.id}"`,
      ),
    ) as Asked;
    t.true(holdsCanary(await ask(operator, named, shape)));
    const shown = await ask(reader, named, shape);
    t.false(holdsCanary(shown), JSON.stringify(shown));
    t.true(JSON.stringify(shown).includes("PASSWORD"));
  });
}

for (const method of ["ListServices", "ListTasks"]) {
  test(`${method} shows a reader no value of any kind of task, and everything else`, async (t) => {
    const { ask, store } = await scene(t);
    const shown = await ask(reader, control(method, {}));
    t.true(holdsCanary(await ask(operator, control(method, {}))) || method === "ListTasks");
    t.false(holdsCanary(shown));
    if (method !== "ListServices") return;
    const { services } = shown as { services: { spec: { annotations: { name: string }; task: ShownTask } }[] };
    t.deepEqual(services.map(({ spec }) => spec.annotations.name).toSorted(), Object.keys(tasks).toSorted());
    const payload = (name: string): Uint8Array => {
      const found = services.find(({ spec }) => spec.annotations.name === name);
      return Buffer.from(found?.spec.task.generic?.payload.value ?? "", "base64");
    };
    t.like(ExecSpec.decode(payload("process")), { command: "sh", env: ["PASSWORD=(not shown)"] });
    t.like(DriverSpec.decode(payload("plugin")), { config: '"(not shown)"', env: ["PASSWORD=(not shown)"] });
    t.is(payload("foreign").length, 0);
    t.true(holdsCanary([...store.all("service")]), "only what is shown is changed");
  });
}

for (const shape of ["V0", "V1"] as const) {
  test(`a reader's all-watcher gets only names (${shape})`, async (t) => {
    const { connect } = await scene(t);
    const told = async (identity: Identity) => {
      const connection = connect(shape, identity);
      const client = { type: "Client", version: shape === "V0" ? 0 : 7 };
      const made = await connection.ask({ ...client, request: "WatchAll" });
      const id = String(made["AllWatcherId"] ?? made["watcher-id"]);
      const version = shape === "V0" ? 0 : 4;
      return connection.ask({ type: "AllWatcher", version, id, request: "Next" });
    };
    t.true(holdsCanary(await told(operator)));
    const shown = await told(reader);
    t.false(holdsCanary(shown));
    t.true(JSON.stringify(shown).includes(`"PASSWORD":"(not shown)"`));
  });
}
