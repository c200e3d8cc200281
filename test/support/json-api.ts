/** The JSON API of a founded cluster on a real port, and clients of it. The clock is the test's. */
import { once } from "node:events";
import type { ExecutionContext } from "ava";
import { WebSocket } from "ws";
import { bootstrapCluster, clusterOf } from "../../actors/manager/bootstrap.ts";
import { createControl } from "../../actors/control.ts";
import { startJsonApi } from "../../actors/json/json-api.ts";
import { startJsonCertificate, serverName, type JsonCertificate } from "../../actors/json/json-certificate.ts";
import { createJsonWatchers } from "../../actors/json/json-watcher.ts";
import { createUsers, setPassword } from "../../actors/json/users.ts";
import type { Server } from "../../edges/juju/admin.ts";
import { Registry } from "../../edges/juju/dispatch.ts";
import type { Facade } from "../../edges/juju/facade.ts";
import { createFacades } from "../../edges/juju/facades/index.ts";
import { Feed } from "../../edges/juju/feed/feed.ts";
import { listenJson, type JsonListener } from "../../edges/juju/listener.ts";
import { loginNameOf } from "../../edges/juju/login-name.ts";
import { AddUserRequest, UserRole } from "../../proto/gen/messages.ts";
import * as pki from "../../runtime/pki/index.ts";
import { Scrypt } from "../../runtime/system/scrypt.ts";
import { call, testManager } from "./manager.ts";

/** Cheap enough for tests; what it costs for good is told in runtime/system/scrypt.ts. */
export const cheapScrypt = { cost: 2 ** 4, blockSize: 8, parallelism: 1 };
export const password = "correct horse";

export type Reply = Readonly<Record<string, unknown>>;

/** A client that sends what it is told and hands over replies in the order in which they come. */
export class TestClient {
  readonly socket: WebSocket;
  readonly #replies: Reply[] = [];
  readonly #wanting: ((reply: Reply) => void)[] = [];
  /** Resolves with the code of the goodbye. */
  readonly closed: Promise<number>;

  constructor(socket: WebSocket) {
    this.socket = socket;
    this.closed = new Promise((resolve) => socket.once("close", resolve));
    socket.on("message", (data: Buffer) => {
      const reply = JSON.parse(data.toString("utf8")) as Reply;
      const wanting = this.#wanting.shift();
      if (wanting === undefined) this.#replies.push(reply);
      else wanting(reply);
    });
    socket.on("error", () => undefined);
  }

  send(message: unknown): void {
    this.socket.send(typeof message === "string" ? message : JSON.stringify(message));
  }

  next(): Promise<Reply> {
    const reply = this.#replies.shift();
    return reply === undefined ? new Promise((resolve) => this.#wanting.push(resolve)) : Promise.resolve(reply);
  }

  ask(message: unknown): Promise<Reply> {
    this.send(message);
    return this.next();
  }

  login(tag = "user-ada", credentials = password): Promise<Reply> {
    return this.ask({
      "request-id": 1,
      type: "Admin",
      version: 3,
      request: "Login",
      params: { "auth-tag": tag, credentials, "client-version": "3.5.2" },
    });
  }
}

export interface JsonWorldOptions {
  /** `all`: those that a manager has. */
  readonly facades?: readonly Facade[] | "all";
  readonly redirect?: readonly Server[];
  readonly connectionsMax?: number;
}

export async function jsonWorld(
  t: ExecutionContext,
  { facades = [], redirect, connectionsMax }: JsonWorldOptions = {},
) {
  const manager = testManager();
  const { env } = manager;
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const passwords = new Scrypt(cheapScrypt);
  const users = createUsers(env, passwords).handlers;
  const api = startJsonApi(env, passwords);
  const control = createControl(env, { leaderId: () => "manager1", authority: pki }).handlers;
  const feed = new Feed({ store: env.store, clock: env.clock });
  const offered =
    facades === "all"
      ? createFacades({
          store: env.store,
          proposer: env.proposer,
          clock: env.clock,
          log: env.telemetry.log,
          control,
          operator: {} as never,
          taskAccess: {} as never,
          logs: {} as never,
          feed,
          watchers: createJsonWatchers(env),
          users,
          setPassword: (name, text, rpc) => setPassword(env, passwords, name, text, rpc),
        })
      : facades;
  let listener: JsonListener | null = null;
  let certificate: JsonCertificate | null = null;
  const first = Promise.withResolvers<JsonCertificate>();
  // Clients check it by the machine's clock.
  const authority = {
    ...pki,
    createServerIdentity: (request: pki.ServerIdentityRequest) =>
      pki.createServerIdentity({ ...request, nowMs: Date.now() }),
  };
  const keeper = startJsonCertificate(env, authority, {
    hosts: ["192.0.2.1"],
    onCertificate: (next) => {
      certificate = next;
      listener?.setCredentials(next);
      first.resolve(next);
    },
  });
  manager.clock.advance(1);
  const { rootPem } = await first.promise;
  listener = await listenJson({
    host: "127.0.0.1",
    port: 0,
    credentials: certificate ?? (await first.promise),
    telemetry: env.telemetry,
    ...(connectionsMax === undefined ? {} : { connectionsMax }),
    parts: {
      api,
      registry: new Registry(offered),
      clock: env.clock,
      clusterId: () => clusterOf(env)?.id ?? "",
      servers: () => [{ host: "192.0.2.1", port: 17_070 }],
      redirect: redirect === undefined ? null : { servers: redirect, rootPem: () => rootPem },
      loginName: (tag) => loginNameOf(env.store, tag),
    },
  });
  const { port } = listener;
  const clients: TestClient[] = [];
  const connect = async (path = "/", options: { cert?: string; key?: string } = {}): Promise<TestClient> => {
    const tls = { ca: rootPem, servername: serverName, ...options };
    const socket = new WebSocket(`wss://127.0.0.1:${port}${path}`, tls);
    const client = new TestClient(socket);
    clients.push(client);
    await once(socket, "open");
    return client;
  };
  const served = listener;
  t.teardown(async () => {
    for (const { socket } of clients) socket.terminate();
    keeper.stop();
    await served.close(0);
    api.stop();
    feed.stop();
  });
  const addUser = (name: string, role: UserRole = UserRole.USER_ROLE_ADMIN) =>
    users.AddUser(AddUserRequest.create({ name, role, password }), call());
  return { ...manager, manager, api, users, addUser, control, connect, port, listener: served, rootPem, passwords };
}
