/**
 * Clients of the JSON API that watch everything: each logs in at some manager, applies the deltas of its all-watcher, and
 * starts
 * again at another manager when its connection breaks or it drops it. Now and then one pauses its requests, like a slow
 * client; and their user is removed and created again, which ends all of their connections.
 *
 * S49: at rest each client has the same view as a client that has just connected, at any manager, and this view matches the
 *      store.
 * S50: at rest no manager keeps more connections than it has clients.
 */
import { machineId, applicationName } from "../../edges/juju/entities/names.ts";
import { AddUserRequest, RemoveUserRequest, UserRole, UsersService } from "../../proto/gen/messages.ts";
import { RpcError, Status, type RpcChannel, type SendingCall } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { Store } from "../../runtime/store/store.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { JsonWire } from "../managers/json-wire.ts";

interface JsonWorkloadOptions extends ClientOptions {
  readonly clients: number;
  /** Connections are dropped deliberately for this many milliseconds. */
  readonly withinMs: number;
}

const user = "ada";
const password = "correct horse";
const retryMsMax = 1_500;
const dropMsMax = 12_000;
/** Maximum pause of a slow client between two requests. */
const slowMsMax = 3_000;
/** Timeout for a login and the first replies. */
const patienceMs = 10_000;

export class JsonWorkload {
  readonly #options: JsonWorkloadOptions;
  readonly #random: SimRandom;
  readonly #clients: JsonClient[] = [];
  /** Clients that connect at rest, one per manager: they see the current state. */
  readonly #fresh = new Map<string, JsonClient>();
  #hasUser = false;

  constructor(options: JsonWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.json");
  }

  start(): void {
    const { addresses, clients, ports, withinMs } = this.#options;
    if (clients === 0) return;
    this.#addUser();
    const end = ports.clock.now() + withinMs;
    if (this.#random.chance(0.5))
      ports.clock.after(this.#random.between(withinMs / 4, withinMs), () => this.#replaceUser());
    for (let at = 0; at < clients; at += 1) {
      const random = this.#random.fork(`client ${at}`);
      const client = new JsonClient(`json${at}`, this.#options, random, () => random.pick(addresses));
      this.#clients.push(client);
      ports.clock.after(random.between(0, withinMs / 2), () => client.connect());
      const again = (): void => {
        if (ports.clock.now() >= end) return;
        client.drop();
        ports.clock.after(random.between(10, dropMsMax), again);
      };
      ports.clock.after(random.between(10, dropMsMax), again);
    }
  }

  /** Retries until a manager has done it. */
  #addUser(): void {
    const { ports } = this.#options;
    const client = new SimClient(this.#options, this.#random.fork("users"));
    const request = AddUserRequest.create({ name: user, password, role: UserRole.USER_ROLE_READ_ONLY });
    client.call(UsersService.methods.AddUser, request, "add a user").then(
      () => (this.#hasUser = true),
      (error: unknown) => {
        // Its answer may have been lost earlier.
        this.#hasUser ||= error instanceof RpcError && error.code === Status.ALREADY_EXISTS;
        if (!this.#hasUser) ports.clock.after(retryMsMax, () => this.#addUser());
      },
    );
  }

  #replaceUser(): void {
    const { trace } = this.#options;
    const client = new SimClient(this.#options, this.#random.fork("users"));
    const again = (): void => {
      this.#hasUser = false;
      this.#addUser();
    };
    const removal = client.call(
      UsersService.methods.RemoveUser,
      RemoveUserRequest.create({ name: user }),
      "remove a user",
    );
    removal.then(() => {
      trace.mark("json.user.removed");
      again();
    }, again);
  }

  /** Checked after faults have ended. S49, S50 */
  whyBehind(
    managers: readonly { readonly address: string; readonly store: Store; readonly open: number }[],
  ): string | null {
    if (this.#clients.length === 0) return null;
    if (managers.every(({ store }) => store.get("user", `user-${user}`) === undefined)) {
      // The log has lost the user.
      if (this.#hasUser) this.#addUser();
      this.#hasUser = false;
      return "S49: there is no user for the JSON API's clients yet";
    }
    for (const { address, open, store } of managers) {
      const fresh = this.#freshAt(address);
      const wrong = differenceFromStore(fresh.entities, store);
      if (wrong !== null) return `S49: a new client of ${address} sees ${wrong}`;
      for (const client of this.#clients) {
        const difference = firstDifference(client.entities, fresh.entities);
        if (difference !== null)
          return `S49: ${client.name} at ${client.address} sees ${difference}, unlike ${address}`;
      }
      const here = [...this.#clients, ...this.#fresh.values()].filter((client) => client.address === address).length;
      if (open > here) return `S50: ${address} keeps ${open} connections for ${here} clients`;
    }
    return null;
  }

  #freshAt(address: string): JsonClient {
    const known = this.#fresh.get(address);
    if (known !== undefined) return known;
    const fresh = new JsonClient("fresh", this.#options, this.#random.fork(`fresh ${address}`), () => address);
    this.#fresh.set(address, fresh);
    fresh.connect();
    return fresh;
  }
}

type Entities = ReadonlyMap<string, string>;

function firstDifference(one: Entities, other: Entities): string | null {
  for (const [key, text] of one)
    if (other.get(key) !== text) return other.has(key) ? `${key} with other content` : `${key}, which does not exist`;
  for (const key of other.keys()) if (!one.has(key)) return `no ${key}`;
  return null;
}

/** Machines and applications, by their names alone. */
function differenceFromStore(entities: Entities, store: Store): string | null {
  const wanted = new Set<string>();
  for (const { id } of store.all("node")) wanted.add(`machine ${machineId(id)}`);
  for (const { spec } of store.all("service"))
    wanted.add(`application ${applicationName(spec?.annotations?.name ?? "")}`);
  const seen = new Set([...entities.keys()].filter((key) => /^(?:machine|application) /.test(key)));
  for (const key of wanted) if (!seen.has(key)) return `no ${key}`;
  for (const key of seen) if (!wanted.has(key)) return `${key}, which does not exist`;
  return null;
}

interface Reply {
  readonly "request-id": number;
  readonly error?: string;
  readonly response: Readonly<Record<string, unknown>>;
}

class JsonClient {
  readonly name: string;
  /** Reported entities by kind and name. */
  readonly entities = new Map<string, string>();
  /** Its current or last manager. */
  address = "";
  readonly #options: JsonWorkloadOptions;
  readonly #random: SimRandom;
  readonly #pick: () => string;
  #channel: RpcChannel | null = null;
  #saying: SendingCall<{ readonly text: string }, { readonly text: string }> | null = null;
  #heard = 0;

  constructor(name: string, options: JsonWorkloadOptions, random: SimRandom, pick: () => string) {
    this.name = name;
    this.#options = options;
    this.#random = random;
    this.#pick = pick;
  }

  connect(): void {
    const { ports } = this.#options;
    this.entities.clear();
    this.address = this.#pick();
    const channel = ports.rpc.dial(this.address, null);
    this.#channel = channel;
    const isCurrent = (): boolean => this.#channel === channel;
    channel.serverStream(
      JsonWire.methods.Hear,
      { text: "" },
      {
        onMessage: ({ text }) => isCurrent() && this.#hear(text),
        onEnd: () => isCurrent() && this.drop(),
      },
    );
    this.#saying = channel.clientStream(JsonWire.methods.Say);
    this.#ask(1, "Admin", "Login", { params: { "auth-tag": `user-${user}`, credentials: password } });
    this.#heard = 0;
    ports.clock.after(patienceMs, () => void (isCurrent() && this.#heard === 0 && this.drop()));
  }

  /** Reconnects after a while. */
  drop(): void {
    const channel = this.#channel;
    if (channel === null) return;
    this.#channel = null;
    channel.close();
    this.#options.ports.clock.after(this.#random.between(1, retryMsMax), () => this.connect());
  }

  #ask(id: number, type: string, request: string, more: object = {}): void {
    const version = type === "Client" ? 6 : 3;
    this.#saying?.write({ text: JSON.stringify({ "request-id": id, type, request, version, ...more }) });
  }

  #hear(text: string): void {
    // A ping.
    if (text === "") return this.#saying?.write({ text: "" });
    this.#heard += 1;
    const { error, response, "request-id": id } = JSON.parse(text) as Reply;
    const { ports, trace } = this.#options;
    if (error !== undefined) {
      trace.write(this.name, error);
      return this.drop();
    }
    if (id === 1) return this.#ask(2, "Client", "WatchAll");
    const next = (): void => this.#ask(id + 1, "AllWatcher", "Next", { id: "1" });
    if (id === 2) return next();
    trace.mark("json.told");
    for (const [kind, change, entity] of response["deltas"] as [string, string, Record<string, unknown>][]) {
      const key = `${kind} ${String(entity["id"] ?? entity["name"] ?? entity["tag"] ?? entity["model-uuid"])}`;
      if (change === "remove") this.entities.delete(key);
      else this.entities.set(key, JSON.stringify(entity));
    }
    if (!this.#random.chance(0.1)) return next();
    trace.mark("json.slow");
    const channel = this.#channel;
    ports.clock.after(this.#random.between(0, slowMsMax), () => void (this.#channel === channel && next()));
  }
}
