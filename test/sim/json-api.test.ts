// Clients of the JSON API in a world where links are slow and break, managers start anew, clients stop listening for a while
// and users come and go: everything that stands behind the port but the port itself, on the simulated clock.
//
// S30: a client that watches, however often it has had to connect anew, is shown in the end what is there.
// S31: nothing is left behind by connections that are gone.
import test from "ava";
import type { ExecutionContext } from "ava";
import { startJsonApi } from "../../actors/json/json-api.ts";
import { createJsonWatchers } from "../../actors/json/json-watcher.ts";
import { createUsers, setPassword } from "../../actors/json/users.ts";
import { createControl } from "../../actors/control.ts";
import { bootstrapCluster, clusterOf } from "../../actors/manager/bootstrap.ts";
import { Connection, type Wire } from "../../edges/juju/connection.ts";
import { Registry } from "../../edges/juju/dispatch.ts";
import { createFacades } from "../../edges/juju/facades/index.ts";
import { Feed } from "../../edges/juju/feed/feed.ts";
import { loginNameOf } from "../../edges/juju/login-name.ts";
import {
  AddUserRequest,
  Annotations,
  Node,
  NodeStatus,
  NodeStatus_State,
  ReplicatedService,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UserRole,
} from "../../proto/gen/messages.ts";
import type { HashedPassword, Passwords } from "../../runtime/passwords.ts";
import * as pki from "../../runtime/pki/index.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { workerNode } from "../support/control.ts";
import { textOfFrame } from "../support/json-frames.ts";
import { call, testManager, type TestManager } from "../support/manager.ts";

const password = "correct horse";
const troubleMs = 40_000;
/** What a client needs to come back: its pause, a login that is too many and a first answer. */
const healedMs = 120_000;

/** No cost and no chance. */
const passwords: Passwords = {
  hash: (text) =>
    Promise.resolve({
      salt: new Uint8Array(),
      key: new TextEncoder().encode(text),
      cost: 1,
      blockSize: 1,
      parallelism: 1,
    }),
  verify: (text, hashed: HashedPassword | null) =>
    Promise.resolve(hashed !== null && Buffer.from(hashed.key).toString() === text),
};

/** One life of a manager's API. */
class Server {
  readonly connections = new Set<Connection>();
  readonly feed: Feed;
  readonly #manager: TestManager;
  readonly #api: ReturnType<typeof startJsonApi>;
  readonly #registry: Registry;

  constructor(manager: TestManager) {
    const { env } = manager;
    this.#manager = manager;
    this.#api = startJsonApi(env, passwords);
    this.feed = new Feed({ store: env.store, clock: env.clock });
    const control = createControl(env, { leaderId: () => "manager1", authority: pki }).handlers;
    this.#registry = new Registry(
      createFacades({
        store: env.store,
        proposer: env.proposer,
        clock: env.clock,
        log: env.telemetry.log,
        control,
        operator: {} as never,
        taskAccess: {} as never,
        logs: {} as never,
        feed: this.feed,
        watchers: createJsonWatchers(env),
        users: createUsers(env, passwords).handlers,
        setPassword: (name, text, rpc) => setPassword(env, passwords, name, text, rpc),
      }),
    );
  }

  accept(id: string): Connection {
    const { env } = this.#manager;
    const { metrics } = env.telemetry;
    const connection = new Connection(
      {
        api: this.#api,
        registry: this.#registry,
        clock: env.clock,
        log: env.telemetry.log,
        metrics: {
          requests: metrics.counter("r", "r"),
          seconds: metrics.histogram("s", "s"),
          logins: metrics.counter("l", "l"),
        },
        clusterId: () => clusterOf(env)?.id ?? "",
        servers: () => [],
        redirect: null,
        loginName: (tag) => loginNameOf(env.store, tag),
      },
      { id, address: id, scope: "model", refusal: null, certificate: null, clientVersion: "" },
    );
    this.connections.add(connection);
    return connection;
  }

  stop(): void {
    for (const connection of this.connections) connection.stop();
    this.#api.stop();
    this.feed.stop();
  }
}

interface Trouble {
  /** Of a message in one direction, in milliseconds. */
  readonly delayMsMax: number;
  /** That a message breaks the link. */
  breakage: number;
}

/** A client that watches all, folds what it is told, and connects anew whenever it has to. */
class Client {
  readonly name: string;
  readonly entities = new Map<string, string>();
  connects = 0;
  /** While it is deaf it takes nothing of what is sent. */
  isDeaf = false;
  readonly #manager: TestManager;
  readonly #random: SimRandom;
  readonly #trouble: Trouble;
  readonly #server: () => Server;
  #life = 0;

  constructor(name: string, manager: TestManager, random: SimRandom, trouble: Trouble, server: () => Server) {
    this.name = name;
    this.#manager = manager;
    this.#random = random;
    this.#trouble = trouble;
    this.#server = server;
  }

  connect(): void {
    const { clock } = this.#manager;
    const life = (this.#life += 1);
    this.connects += 1;
    this.entities.clear();
    const server = this.#server();
    const connection = server.accept(`${this.name}-${life}`);
    const held: string[] = [];
    let isOver = false;
    let arrives = 0;

    const end = (): void => {
      if (isOver) return;
      isOver = true;
      connection.closed();
      server.connections.delete(connection);
      clock.setTimeout(() => this.connect(), this.#random.between(100, 5_000));
    };
    // Messages of one direction keep their order.
    const later = (act: () => void): void => {
      if (isOver) return;
      if (this.#random.chance(this.#trouble.breakage)) return end();
      arrives = Math.max(arrives, clock.now() + this.#random.between(0, this.#trouble.delayMsMax));
      clock.setTimeout(() => !isOver && act(), arrives - clock.now());
    };
    const hear = (text: string): void => {
      if (this.isDeaf) held.push(text);
      else later(() => this.#take(text, ask, end));
    };
    const wire: Wire = {
      send: hear,
      sendShared: (beginning, result) => hear(textOfFrame(Buffer.concat(result.message(beginning)))),
      ping: () => void (this.isDeaf || later(() => connection.heard())),
      pause: () => undefined,
      resume: () => undefined,
      unsentBytes: () => {
        if (!this.isDeaf) for (const text of held.splice(0)) later(() => this.#take(text, ask, end));
        return held.reduce((sum, text) => sum + text.length, 0);
      },
      close: end,
      cut: end,
    };
    const ask = (requestId: number, type: string, request: string, more: object = {}): void =>
      later(() => connection.take(JSON.stringify({ "request-id": requestId, type, request, version: 3, ...more })));
    connection.opened(wire);
    ask(1, "Admin", "Login", { params: { "auth-tag": `user-${this.name}`, credentials: password } });
  }

  #take(text: string, ask: (id: number, type: string, request: string, more?: object) => void, end: () => void): void {
    const reply = JSON.parse(text) as { "request-id": number; error?: string; response: Record<string, unknown> };
    if (reply.error !== undefined) return end();
    if (reply["request-id"] === 1) return ask(2, "Client", "WatchAll", { version: 6 });
    if (reply["request-id"] === 2) return ask(3, "AllWatcher", "Next", { id: reply.response["watcher-id"] });
    for (const [kind, change, entity] of reply.response["deltas"] as [string, string, Record<string, unknown>][]) {
      const key = `${kind} ${String(entity["id"] ?? entity["name"] ?? entity["tag"] ?? entity["model-uuid"])}`;
      if (change === "remove") this.entities.delete(key);
      else this.entities.set(key, JSON.stringify(entity));
    }
    ask(reply["request-id"] + 1, "AllWatcher", "Next", { id: "1" });
  }
}

/** Nodes, services and tasks that come, change and go. */
function change({ seed, drop }: TestManager, random: SimRandom): void {
  const at = random.below(6);
  const node = Node.patch(workerNode(`n${at}`), {
    status: NodeStatus.create({ state: random.chance(0.7) ? NodeStatus_State.READY : NodeStatus_State.DOWN }),
  });
  const name = `web${"abc"[at % 3]}`;
  switch (random.below(6)) {
    case 0:
      return drop("node", `n${at}`);
    case 1:
      return seed("node", node);
    case 2:
      return seed(
        "service",
        Service.create({
          id: name,
          spec: ServiceSpec.create({
            annotations: Annotations.create({ name, labels: random.chance(0.5) ? { team: String(at) } : {} }),
            task: TaskSpec.create({}),
            replicated: ReplicatedService.create({ replicas: random.below(5) }),
          }),
        }),
      );
    case 3:
      return drop("task", `${name}.${at}`);
    default:
      return seed(
        "task",
        Task.create({
          id: `${name}.${at}`,
          serviceId: name,
          slot: 1 + (at % 2),
          nodeId: `n${random.below(6)}`,
          serviceAnnotations: Annotations.create({ name }),
          status: TaskStatus.create({ state: random.pick([TaskState.STARTING, TaskState.RUNNING, TaskState.FAILED]) }),
          desiredState: TaskState.RUNNING,
        }),
      );
  }
}

/** As a client sees it that connects now and is told once. */
async function presentOf(manager: TestManager, server: Server): Promise<ReadonlyMap<string, string>> {
  const calm = new Client("calm", manager, new SimRandom("calm"), { delayMsMax: 1, breakage: 0 }, () => server);
  calm.connect();
  await manager.clock.run({ untilMs: manager.clock.now() + 5_000 });
  return calm.entities;
}

async function simulate(t: ExecutionContext, seed: number): Promise<{ connects: number; digest: string }> {
  const random = new SimRandom(`${seed}/json`);
  const manager = testManager();
  const { clock, env } = manager;
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const users = createUsers(env, passwords).handlers;
  const add = (name: string) =>
    users.AddUser(AddUserRequest.create({ name, role: UserRole.USER_ROLE_READ_ONLY, password }), call());
  const trouble: Trouble = { delayMsMax: random.between(1, 400), breakage: random.chance(0.5) ? 0.02 : 0 };
  const names = ["ada", "bob", "eve"];
  for (const name of [...names, "calm"]) await add(name);
  let server = new Server(manager);
  const clients = names.map((name) => new Client(name, manager, random.fork(name), trouble, () => server));
  for (const client of clients) client.connect();
  const restarts = random.chance(0.5);
  const goes = random.chance(0.5);
  const ends = clock.now() + troubleMs;
  while (clock.now() < ends) {
    for (let n = random.below(5); n > 0; n -= 1) change(manager, random);
    if (random.chance(0.02)) for (const client of clients) client.isDeaf = random.chance(0.3);
    if (restarts && random.chance(0.02)) {
      const old = server;
      server = new Server(manager);
      old.stop();
    }
    if (goes && random.chance(0.02)) manager.drop("user", "user-eve");
    else if (manager.store.get("user", "user-eve") === undefined && random.chance(0.1)) void add("eve");
    await clock.run({ untilMs: clock.now() + random.between(10, 300) });
  }
  trouble.breakage = 0;
  for (const client of clients) client.isDeaf = false;
  await clock.run({ untilMs: clock.now() + 1_000 });
  if (manager.store.get("user", "user-eve") === undefined) await add("eve");
  await clock.run({ untilMs: clock.now() + healedMs });
  const present = await presentOf(manager, server);
  const sorted = (entities: ReadonlyMap<string, string>) => [...entities].toSorted(([l], [r]) => (l < r ? -1 : 1));
  for (const client of clients)
    t.deepEqual(sorted(client.entities), sorted(present), `S30: seed ${seed}, ${client.name}`);
  t.is(server.connections.size, clients.length + 1, `S31: seed ${seed}`);
  server.stop();
  t.is(server.connections.size, 0, `S31: seed ${seed}: none is left when the manager has ended`);
  const digest = JSON.stringify([sorted(present), clients.map(({ connects }) => connects)]);
  return { connects: clients.reduce((sum, { connects }) => sum + connects, 0), digest };
}

test("S30, S31: clients that watch converge to what is there, through slow and broken links, restarts and lost users", async (t) => {
  let connects = 0;
  for (let seed = 1; seed <= 12; seed += 1) connects += (await simulate(t, seed)).connects;
  t.true(connects > 60, `they had to connect anew: ${connects}`);
});

test("a seed gives the same each time", async (t) => {
  t.is((await simulate(t, 4)).digest, (await simulate(t, 4)).digest);
});
