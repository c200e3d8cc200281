// Writes that could each use what the other uses: in any order, at most one succeeds.
import test from "ava";
import fc from "fast-check";
import { createControl } from "../../actors/control.ts";
import { commit, replacement } from "../../actors/control/write.ts";
import { checkPortConflicts, checkServiceSpec, needsIngress } from "../../machines/validation/service.ts";
import {
  Annotations,
  ConfigReference,
  ConfigSpec,
  ContainerSpec,
  CreateConfigRequest,
  CreateNetworkRequest,
  CreateSecretRequest,
  CreateServiceRequest,
  Driver,
  Endpoint,
  EndpointSpec,
  FileTarget,
  NetworkAttachmentConfig,
  NetworkSpec,
  PortConfig,
  PortConfig_PublishMode,
  RemoveConfigRequest,
  RemoveNetworkRequest,
  RemoveSecretRequest,
  RemoveServiceRequest,
  ReplicatedService,
  SecretReference,
  SecretSpec,
  Service,
  ServiceSpec,
  TaskSpec,
  Task,
  TaskState,
  TaskStatus,
  UpdateConfig,
  UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  UpdateStatus,
  UpdateStatus_UpdateState,
  type Network,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import * as pki from "../../lib/pki/index.ts";
import { call, testManager } from "../support/manager.ts";

const named = (name: string) => Annotations.create({ name });
const file = (name: string) => FileTarget.create({ name, uid: "0", gid: "0", mode: 0o444 });
const overlay = Driver.create({ name: "overlay" });

interface Wish {
  readonly name: string;
  readonly image: string;
  readonly replicas: number;
  /** Published port, its mode, or none. */
  readonly port: { readonly published: number; readonly mode: PortConfig_PublishMode } | null;
  readonly network: string | null;
  readonly secret: string | null;
  readonly config: string | null;
  readonly ratio: number;
}

/** Some of these are wrong by themselves, some only beside others. */
const wishes: fc.Arbitrary<Wish> = fc.record({
  name: fc.constantFrom("a", "b", "c", "A", "", "not.valid"),
  image: fc.constantFrom("bb:1", "bb:2", "Wrong"),
  replicas: fc.constantFrom(0, 1, 3),
  port: fc.option(
    fc.record({
      published: fc.constantFrom(0, 80, 81, 70_000),
      mode: fc.constantFrom(PortConfig_PublishMode.INGRESS, PortConfig_PublishMode.HOST),
    }),
  ),
  network: fc.option(fc.constantFrom("blue", "green", "missing")),
  secret: fc.option(fc.constantFrom("key", "missing")),
  config: fc.option(fc.constantFrom("settings", "missing")),
  ratio: fc.constantFrom(0, 0.5, 2),
});

type Step =
  | { readonly kind: "create"; readonly wish: Wish }
  | { readonly kind: "update"; readonly target: number; readonly wish: Wish; readonly isStale: boolean }
  | { readonly kind: "rollback"; readonly target: number }
  | { readonly kind: "remove"; readonly target: number }
  | { readonly kind: "makeNetwork" | "dropNetwork"; readonly name: string }
  | { readonly kind: "makeIngress"; readonly name: string }
  | { readonly kind: "makeFiles" | "dropSecret" | "dropConfig" };

const target = fc.nat(5);
const network = fc.constantFrom("blue", "green", "ingress");
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("create" as const), wish: wishes }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("update" as const), target, wish: wishes, isStale: fc.boolean() }),
  },
  fc.record({ kind: fc.constant("rollback" as const), target }),
  fc.record({ kind: fc.constant("remove" as const), target }),
  fc.record({ kind: fc.constantFrom("makeNetwork" as const, "dropNetwork" as const), name: network }),
  fc.record({ kind: fc.constant("makeIngress" as const), name: fc.constantFrom("ingress", "other") }),
  fc.record({ kind: fc.constantFrom("makeFiles" as const, "dropSecret" as const, "dropConfig" as const) }),
);

/** Two managers' Control over one store, as two callers would reach it. */
function cluster() {
  const manager = testManager();
  const control = createControl(manager.env, { leaderId: () => "manager1", authority: pki }).handlers;
  const { store } = manager;
  const idOf = (table: "network" | "secret" | "config", name: string): string =>
    store.byName(table, name)?.id ?? `no-${name}`;
  const services = (): Service[] => [...store.all("service")];

  function specFor(wish: Wish): ServiceSpec {
    const secrets =
      wish.secret === null
        ? []
        : [SecretReference.create({ secretId: idOf("secret", wish.secret), secretName: wish.secret, file: file("s") })];
    const configs =
      wish.config === null
        ? []
        : [ConfigReference.create({ configId: idOf("config", wish.config), configName: wish.config, file: file("c") })];
    const networks =
      wish.network === null ? [] : [NetworkAttachmentConfig.create({ target: idOf("network", wish.network) })];
    const ports =
      wish.port === null
        ? []
        : [PortConfig.create({ targetPort: 80, publishedPort: wish.port.published, publishMode: wish.port.mode })];
    return ServiceSpec.create({
      annotations: named(wish.name),
      task: TaskSpec.create({ container: ContainerSpec.create({ image: wish.image, secrets, configs }), networks }),
      replicated: ReplicatedService.create({ replicas: wish.replicas }),
      update: UpdateConfig.create({ maxFailureRatio: wish.ratio }),
      endpoint: EndpointSpec.create({ ports }),
    });
  }

  async function run(step: Step): Promise<void> {
    const all = services();
    const chosen = "target" in step ? all[step.target % Math.max(1, all.length)] : undefined;
    switch (step.kind) {
      case "create":
        await control.CreateService(CreateServiceRequest.create({ spec: specFor(step.wish) }), call());
        return;
      case "update":
      case "rollback": {
        if (chosen === undefined) return;
        const version = chosen.meta?.version ?? null;
        const isStale = step.kind === "update" && step.isStale;
        const request = UpdateServiceRequest.create({
          serviceId: chosen.id,
          serviceVersion: isStale ? { index: (version?.index ?? 1) - 1 } : version,
          spec:
            step.kind === "update"
              ? specFor({ ...step.wish, name: chosen.spec?.annotations?.name ?? "" })
              : chosen.spec,
          rollback:
            step.kind === "update" ? UpdateServiceRequest_Rollback.NONE : UpdateServiceRequest_Rollback.PREVIOUS,
        });
        await control.UpdateService(request, call());
        return;
      }
      case "remove":
        if (chosen !== undefined) {
          await control.RemoveService(RemoveServiceRequest.create({ serviceId: chosen.id }), call());
        }
        return;
      case "makeNetwork": {
        const spec = NetworkSpec.create({ annotations: named(step.name), driverConfig: overlay });
        await control.CreateNetwork(CreateNetworkRequest.create({ spec }), call());
        return;
      }
      case "makeIngress": {
        const spec = NetworkSpec.create({ annotations: named(step.name), driverConfig: overlay, ingress: true });
        await control.CreateNetwork(CreateNetworkRequest.create({ spec }), call());
        return;
      }
      case "dropNetwork":
        await control.RemoveNetwork(RemoveNetworkRequest.create({ networkId: idOf("network", step.name) }), call());
        return;
      case "makeFiles": {
        const data = new Uint8Array([1]);
        const secret = SecretSpec.create({ annotations: named("key"), data });
        const config = ConfigSpec.create({ annotations: named("settings"), data });
        // Either may already exist.
        await Promise.allSettled([
          control.CreateSecret(CreateSecretRequest.create({ spec: secret }), call()),
          control.CreateConfig(CreateConfigRequest.create({ spec: config }), call()),
        ]);
        return;
      }
      case "dropSecret":
        await control.RemoveSecret(RemoveSecretRequest.create({ secretId: idOf("secret", "key") }), call());
        return;
      case "dropConfig":
        await control.RemoveConfig(RemoveConfigRequest.create({ configId: idOf("config", "settings") }), call());
    }
  }

  return { manager, store, control, services, specFor, run };
}

const expected: ReadonlySet<number> = new Set([
  Status.INVALID_ARGUMENT,
  Status.NOT_FOUND,
  Status.ALREADY_EXISTS,
  Status.FAILED_PRECONDITION,
  Status.ABORTED,
]);

/** A rejection with a status that the caller can act on; anything else is a fault. */
function refusal(error: unknown): RpcError {
  if (error instanceof RpcError && expected.has(error.code) && error.message !== "") return error;
  throw error;
}

/** Invariants of the store after every write. */
function wrongs({ store, services }: ReturnType<typeof cluster>): string[] {
  const found: string[] = [];
  const names = new Set<string>();
  const ingress = [...store.all("network")].filter(({ spec }) => spec?.ingress === true);
  if (ingress.length > 1) found.push(`there are ${ingress.length} ingress networks`);
  for (const service of services()) {
    const { spec, id } = service;
    if (spec === null) return [`${id} has no spec`];
    const name = (spec.annotations?.name ?? "").toLowerCase();
    if (names.has(name)) found.push(`two services have the name ${name}`);
    names.add(name);
    const flaw = checkServiceSpec(spec) ?? checkPortConflicts(spec, id, services());
    if (flaw !== null) found.push(flaw.message);
    if (needsIngress(spec) && ingress.length === 0)
      found.push(`${name} publishes ports, but there is no ingress network`);
    for (const { target: of } of spec.task?.networks ?? []) {
      if (store.get("network", of) === undefined) found.push(`${name} is on the removed network ${of}`);
      if (ingress.some(({ id: each }) => each === of)) found.push(`${name} is on the ingress network`);
    }
    for (const { secretId } of spec.task?.container?.secrets ?? []) {
      if (store.get("secret", secretId) === undefined) found.push(`${name} has the removed secret ${secretId}`);
    }
    for (const { configId } of spec.task?.container?.configs ?? []) {
      if (store.get("config", configId) === undefined) found.push(`${name} has the removed config ${configId}`);
    }
  }
  return found;
}

/** An ingress network and the objects that requests name, so that not everything is rejected. */
async function furnished(): Promise<ReturnType<typeof cluster>> {
  const made = cluster();
  await made.run({ kind: "makeIngress", name: "ingress" });
  await made.run({ kind: "makeNetwork", name: "blue" });
  await made.run({ kind: "makeFiles" });
  return made;
}

test("after any requests in sequence the store is consistent, and a rejection changes nothing", async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(steps, { maxLength: 25 }), async (script) => {
      const made = await furnished();
      for (const step of script) {
        const before = made.store.version;
        const refused = await made.run(step).then(() => null, refusal);
        if (refused !== null) t.is(made.store.version, before, `${JSON.stringify(step)}: ${refused.message}`);
        t.deepEqual(wrongs(made), [], JSON.stringify(step));
      }
    }),
    { numRuns: 150 },
  );
});

test("after any concurrent requests the store is consistent", async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(steps, { minLength: 2, maxLength: 4 }), { maxLength: 8 }), async (rounds) => {
      const made = await furnished();
      for (const round of rounds) {
        await Promise.all(round.map((step) => made.run(step).catch(refusal)));
        t.deepEqual(wrongs(made), [], JSON.stringify(round));
      }
    }),
    { numRuns: 150 },
  );
});

const wish: Wish = {
  name: "a",
  image: "bb:1",
  replicas: 1,
  port: null,
  network: null,
  secret: null,
  config: null,
  ratio: 0,
};
const ingressPort = { published: 80, mode: PortConfig_PublishMode.INGRESS };

test("when two services request one port at once, one is created and the other learns the owner", async (t) => {
  const made = await furnished();
  const outcomes = await Promise.all(
    ["a", "b"].map((name) =>
      made.run({ kind: "create", wish: { ...wish, name, port: ingressPort } }).then(() => null, refusal),
    ),
  );
  const [refused] = outcomes.filter((outcome) => outcome !== null);
  t.is(made.services().length, 1);
  t.is(refused?.code, Status.INVALID_ARGUMENT);
  t.regex(refused?.message ?? "", /^port '80' is already in use by service '[ab]' \(.+\) as an ingress port$/);
});

test("a port that the allocator has chosen counts as used too", async (t) => {
  const made = await furnished();
  await made.run({ kind: "create", wish: { ...wish, port: { ...ingressPort, published: 0 } } });
  const [service] = made.services() as [Service];
  const chosen = PortConfig.create({ targetPort: 80, publishedPort: 30_000 });
  const endpoint = Endpoint.create({ spec: service.spec?.endpoint ?? null, ports: [chosen] });
  made.manager.seed("service", Service.patch(service, { endpoint }));
  const other = { ...wish, name: "b", port: { ...ingressPort, published: 30_000 } };
  const refused = await made.run({ kind: "create", wish: other }).then(() => null, refusal);
  t.regex(refused?.message ?? "", /^port '30000' is already in use by service 'a'/);
});

test("a network that a service joins during its removal either stays or cannot be joined", async (t) => {
  const made = await furnished();
  const blue = made.store.byName("network", "blue") as Network;
  await Promise.all([
    made.run({ kind: "create", wish: { ...wish, network: "blue" } }).catch(refusal),
    made.run({ kind: "dropNetwork", name: "blue" }).catch(refusal),
  ]);
  t.is(made.services().length === 1, made.store.get("network", blue.id) !== undefined);
});

test("a service on a missing network is rejected with the network's name", async (t) => {
  const made = await furnished();
  const refused = await made.run({ kind: "create", wish: { ...wish, network: "missing" } }).then(() => null, refusal);
  t.is(refused?.code, Status.INVALID_ARGUMENT);
  t.is(refused?.message, "network no-missing not found");
});

test("a rollback to a spec whose port another service uses is rejected", async (t) => {
  const made = await furnished();
  await made.run({ kind: "create", wish: { ...wish, port: ingressPort } });
  await made.run({ kind: "update", target: 0, wish, isStale: false });
  await made.run({ kind: "create", wish: { ...wish, name: "b", port: ingressPort } });
  const first = made.services().findIndex(({ spec }) => spec?.annotations?.name === "a");
  const refused = await made.run({ kind: "rollback", target: first }).then(() => null, refusal);
  t.regex(refused?.message ?? "", /^port '80' is already in use by service 'b'/);
});

/** The errors of concurrent steps; null for success. */
function atOnce(made: ReturnType<typeof cluster>, ...asked: readonly Step[]): Promise<(RpcError | null)[]> {
  return Promise.all(asked.map((step) => made.run(step).then(() => null, refusal)));
}

const bare = { kind: "update", target: 0, wish, isStale: false } as const;
const back = { kind: "rollback", target: 0 } as const;

test("a requested rollback is checked in its turn: its resources may be another's, or removed, by then", async (t) => {
  const whole = { ...wish, port: ingressPort, network: "blue", secret: "key", config: "settings" };
  const rivals: readonly Step[] = [
    { kind: "create", wish: { ...wish, name: "b", port: ingressPort } },
    { kind: "dropNetwork", name: "blue" },
    { kind: "dropNetwork", name: "ingress" },
    { kind: "dropSecret" },
    { kind: "dropConfig" },
  ];
  for (const rival of rivals) {
    for (const pair of [
      [rival, back],
      [back, rival],
    ]) {
      const made = await furnished();
      await made.run({ kind: "create", wish: whole });
      await made.run(bare);
      const [first, second] = await atOnce(made, ...pair);
      t.is(first, null);
      t.not(second, null, JSON.stringify(pair));
      t.deepEqual(wrongs(made), []);
    }
  }
});

test("when two ingress networks are created at once, one is created and the other gets an error", async (t) => {
  const made = cluster();
  const [first, second] = await atOnce(
    made,
    { kind: "makeIngress", name: "one" },
    { kind: "makeIngress", name: "two" },
  );
  t.is(first, null);
  t.is(second?.code, Status.ALREADY_EXISTS);
  t.regex(second?.message ?? "", /^ingress network \(.+\) is already present$/);
});

test("when the ingress network is removed while a service that publishes ports is created, one of the two stays", async (t) => {
  const create = { kind: "create", wish: { ...wish, port: ingressPort } } as const;
  const drop = { kind: "dropNetwork", name: "ingress" } as const;
  const first = await furnished();
  const [, late] = await atOnce(first, drop, create);
  t.is(late?.code, Status.FAILED_PRECONDITION);
  t.is(late?.message, "service needs ingress network, but no ingress network is present");
  const second = await furnished();
  const [, kept] = await atOnce(second, create, drop);
  t.is(kept?.code, Status.FAILED_PRECONDITION);
  t.regex(kept?.message ?? "", /^ingress network cannot be removed because service .+ depends on it$/);
});

test("a port requested while the allocator chooses it is not chosen", async (t) => {
  const made = await furnished();
  await made.run({ kind: "create", wish: { ...wish, port: { ...ingressPort, published: 0 } } });
  const [service] = made.services() as [Service];
  const ports = [PortConfig.create({ targetPort: 80, publishedPort: 30_000 })];
  const chosen = Service.patch(service, { endpoint: Endpoint.create({ spec: service.spec?.endpoint ?? null, ports }) });
  const write = () => commit(made.manager.env, call(), replacement("service", chosen)).then(() => null, refusal);
  const asked = { kind: "create", wish: { ...wish, name: "b", port: { ...ingressPort, published: 30_000 } } } as const;
  const [first, second] = await Promise.all([made.run(asked).then(() => null, refusal), write()]);
  t.is(first, null);
  t.regex(second?.message ?? "", /^port '30000' is already in use by service 'b'/);
  await made.run({ kind: "remove", target: 1 });
  t.is(await write(), null, "it is free again");
  const [other] = made.services() as [Service];
  const moved = Service.patch(other, { pendingDelete: true });
  t.is(await commit(made.manager.env, call(), replacement("service", moved)).then(() => null, refusal), null);
});

test("no service can join the ingress network, by its id or by its name in any case", async (t) => {
  const made = await furnished();
  const { id } = made.store.byName("network", "ingress") as Network;
  for (const target of [id, "ingress", "INGRESS"]) {
    const task = TaskSpec.patch(made.specFor(wish).task ?? TaskSpec.create(), {
      networks: [NetworkAttachmentConfig.create({ target })],
    });
    const spec = ServiceSpec.patch(made.specFor(wish), { task });
    const create = async () => made.control.CreateService(CreateServiceRequest.create({ spec }), call());
    const refused = await create().then(() => null, refusal);
    t.is(refused?.message, 'Service cannot be explicitly attached to the ingress network "ingress"', target);
  }
});

/** A service on everything, updated to use none of it, with a task of the previous spec. */
async function leaving(state: UpdateStatus_UpdateState | null): Promise<ReturnType<typeof cluster>> {
  const made = await furnished();
  const whole = { ...wish, port: ingressPort, network: "blue", secret: "key", config: "settings" };
  await made.run({ kind: "create", wish: whole });
  const [before] = made.services() as [Service];
  const old = Task.create({
    id: "t1",
    serviceId: before.id,
    slot: 1,
    spec: before.spec?.task ?? null,
    specVersion: before.specVersion,
    desiredState: TaskState.RUNNING,
    status: TaskStatus.create({ state: TaskState.RUNNING }),
  });
  made.manager.seed("task", old);
  await made.run(bare);
  if (state === null) return made;
  const [service] = made.services() as [Service];
  made.manager.seed("service", Service.patch(service, { updateStatus: UpdateStatus.create({ state }) }));
  return made;
}

const drops: readonly Step[] = [
  { kind: "dropNetwork", name: "ingress" },
  { kind: "dropNetwork", name: "blue" },
  { kind: "dropSecret" },
  { kind: "dropConfig" },
];

test("objects needed by an update's rollback are kept until the update is over", async (t) => {
  const { COMPLETED, PAUSED, UPDATING } = UpdateStatus_UpdateState;
  // Null: the leader has not started it yet.
  for (const state of [null, UPDATING, PAUSED]) {
    const made = await leaving(state);
    const messages: string[] = [];
    for (const step of drops) {
      const [refused] = await atOnce(made, step);
      messages.push((refused?.message ?? "done").replaceAll(/[0-9a-z]{25}/g, "ID"));
    }
    t.deepEqual(messages, [
      "ingress network cannot be removed because service ID depends on it: its update may be rolled back",
      "network ID is in use by service ID: its update may be rolled back",
      "secret 'key' is in use by the following service: a (its update may be rolled back)",
      "config 'settings' is in use by the following service: a (its update may be rolled back)",
    ]);
  }
  const made = await leaving(COMPLETED);
  made.manager.seed("task", Task.patch(made.store.get("task", "t1") as Task, { desiredState: TaskState.SHUTDOWN }));
  for (const step of drops) t.deepEqual(await atOnce(made, step), [null]);
});

test("an update that no task waits for holds nothing", async (t) => {
  const made = await leaving(null);
  made.manager.seed("task", Task.patch(made.store.get("task", "t1") as Task, { desiredState: TaskState.SHUTDOWN }));
  for (const step of drops) t.deepEqual(await atOnce(made, step), [null]);
});

test("an object that a concurrent update stops using cannot be removed: a rollback may need it", async (t) => {
  for (const drop of drops) {
    const made = await leaving(UpdateStatus_UpdateState.COMPLETED);
    await made.run(back);
    const [first, second] = await atOnce(made, bare, drop);
    t.is(first, null);
    t.not(second, null, JSON.stringify(drop));
  }
});
