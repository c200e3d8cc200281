/** The JSON API of a created cluster on a real port, and clients of it. The test controls the clock. */
import { scrypt, type ScryptOptions } from "node:crypto";
import { once } from "node:events";
import { promisify } from "node:util";
import type { ExecutionContext } from "ava";
import { WebSocket } from "ws";
import { bootstrapCluster, clusterOf } from "../../actors/manager/bootstrap.ts";
import { createControl } from "../../actors/control.ts";
import { startJsonApi } from "../../actors/json/api.ts";
import { createLogins } from "../../actors/json/logins.ts";
import { startJsonCertificate, serverName, type JsonCertificate } from "../../actors/json/certificate.ts";
import { createUsers } from "../../actors/json/users.ts";
import type { Server } from "../../edges/juju/admin.ts";
import { Registry } from "../../edges/juju/dispatch.ts";
import type { Call, Facade } from "../../edges/juju/facade.ts";
import { createAdmission, type AdmissionLimits } from "../../edges/grpc/admission/admission.ts";
import { listenJson, type JsonListener } from "../../edges/juju/listener.ts";
import { loginNameOf } from "../../edges/juju/login-name.ts";
import { AddUserRequest, UserRole } from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { Scrypt } from "../../runtime/system/scrypt.ts";
import { testFacades } from "./json-facades.ts";
import { call, testManager } from "./manager.ts";

/** Cheap enough for tests; runtime/system/scrypt.ts states the production cost. */
export const cheapScrypt = { cost: 2 ** 4, blockSize: 8, parallelism: 1 };
export const password = "correct horse";

const derive = promisify<string, Uint8Array, number, ScryptOptions, Buffer>(scrypt);

export type Reply = Readonly<Record<string, unknown>>;

/** A client that sends what the test gives it and returns replies in the order of arrival. */
export class TestClient {
  readonly socket: WebSocket;
  readonly #replies: Reply[] = [];
  readonly #wanting: ((reply: Reply) => void)[] = [];
  /** Resolves with the code of the close frame. */
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

interface JsonWorldOptions {
  /** `all`: those that a manager has. */
  readonly facades?: readonly Facade[] | "all";
  /** In addition to all. */
  readonly extra?: readonly Facade[];
  readonly redirect?: readonly Server[];
  readonly connectionsMax?: number;
  /** Origins of pages that may connect. */
  readonly origins?: readonly string[];
  /** Overrides limits on clients. */
  readonly limits?: Partial<AdmissionLimits>;
}

/** The same facades; `waiting` returns how many of their requests are in progress. */
function counted(facades: readonly Facade[], waiting: { requests: number }): readonly Facade[] {
  return facades.map((facade) => ({
    ...facade,
    methods: Object.fromEntries(
      Object.entries(facade.methods).map(([name, method]) => [
        name,
        {
          ...method,
          async run(asked: Call) {
            waiting.requests += 1;
            try {
              return await method.run(asked);
            } finally {
              waiting.requests -= 1;
            }
          },
        },
      ]),
    ),
  }));
}

export async function jsonWorld(
  t: ExecutionContext,
  { facades = [], extra = [], redirect, connectionsMax, origins = [], limits }: JsonWorldOptions = {},
) {
  const manager = testManager();
  const { env } = manager;
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const derived = { passwords: 0 };
  const passwords = new Scrypt(cheapScrypt, (text, salt, { cost: N, blockSize: r, parallelism: p }) => {
    derived.passwords += 1;
    return derive(text, salt, 32, { N, r, p });
  });
  const users = createUsers(env, passwords).handlers;
  const api = startJsonApi(env, createLogins(env, passwords));
  const control = createControl(env, { leaderId: () => "manager1", authority: pki }).handlers;
  const all = testFacades(env, { control, passwords });
  const waiting = { requests: 0 };
  const offered = counted(facades === "all" ? [...all.facades, ...extra] : facades, waiting);
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
    onClockJump: () => {},
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
    agents: { host: "127.0.0.1", port: 0 },
    origins,
    credentials: certificate ?? (await first.promise),
    telemetry: env.telemetry,
    admission: createAdmission(env.telemetry, limits),
    ...(connectionsMax === undefined ? {} : { connectionsMax }),
    parts: {
      api,
      registry: new Registry(offered),
      clock: env.clock,
      clusterId: () => clusterOf(env)?.id ?? "",
      rootPem: () => rootPem,
      servers: () => [{ host: "192.0.2.1", port: 17_070 }],
      redirect: redirect === undefined ? null : { servers: redirect, rootPem: () => rootPem },
      loginName: (tag) => loginNameOf(env.store, tag),
    },
  });
  const { port, agentPort } = listener;
  const clients: TestClient[] = [];
  /** With a certificate of the agents' port, unless another is given. */
  const connect = async (
    path = "/",
    options: { cert?: string; key?: string; origin?: string; headers?: Record<string, string>; to?: number } = {},
  ): Promise<TestClient> => {
    const { to = options.cert === undefined ? port : (agentPort ?? port), ...rest } = options;
    const tls = { ca: rootPem, servername: serverName, ...rest };
    const socket = new WebSocket(`wss://127.0.0.1:${to}${path}`, tls);
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
    all.stop();
  });
  const addUser = (name: string, role: UserRole = UserRole.USER_ROLE_ADMIN) =>
    users.AddUser(AddUserRequest.create({ name, role, password }), call());
  return {
    ...manager,
    manager,
    api,
    users,
    addUser,
    control,
    connect,
    /** All clients that have connected. */
    clients,
    port,
    listener: served,
    rootPem,
    passwords,
    /** Key derivations so far: the cost of logins. */
    derived,
    /** Requests whose handlers are running. */
    waiting,
  };
}
