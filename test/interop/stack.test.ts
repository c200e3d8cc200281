// The same Compose files deployed by Docker's client and by ours, on one stock dockerd manager: the resulting services,
// networks, secrets and configs are equal. Also a stack of ours on stock engines.
import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { connectUnix } from "../../edges/grpc/client.ts";
import {
  ConfigSpec,
  ControlService,
  ListConfigsRequest,
  ListNetworksRequest,
  ListSecretsRequest,
  ListServicesRequest,
  NetworkSpec,
  SecretSpec,
  ServiceSpec,
  type Annotations,
} from "../../proto/gen/messages.ts";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { labMissing } from "../fixtures/lab.ts";
import { tempDir } from "../fixtures/muster.ts";
import { plainControlSocket } from "../fixtures/stock-control.ts";
import { labSwarm } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";
import { composeFiles, overrideFile } from "../fixtures/compose-files.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);
const muster = fileURLToPath(new URL("../../bin/muster", import.meta.url));

interface Picture {
  readonly services: Record<string, unknown>;
  readonly networks: Record<string, unknown>;
  readonly secrets: Record<string, unknown>;
  readonly configs: Record<string, unknown>;
}

type Named = { readonly id: string; readonly spec: { readonly annotations: Annotations | null } | null };

const nameOf = ({ spec }: Named): string => spec?.annotations?.name ?? "";

/** Keys in a fixed order; lists that Docker's client writes in the order of a Go map are sorted. */
function ordered(value: unknown, key = ""): unknown {
  if (Array.isArray(value)) {
    const items = value.map((item) => ordered(item));
    const isUnordered = ["env", "hosts", "secrets", "configs"].includes(key);
    return isUnordered ? items.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)) : items;
  }
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([name, item]) => [name, ordered(item, name)] as const);
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** The manager's objects of `stack`, with names for ids and `STACK` for the stack's own name. */
async function picture(socket: string, stack: string): Promise<Picture> {
  const channel = await connectUnix(socket);
  const { methods } = ControlService;
  const options = { timeoutMs: 60_000 };
  try {
    const [{ services }, { networks }, { secrets }, { configs }] = await Promise.all([
      channel.unary(methods.ListServices, ListServicesRequest.create({}), options),
      channel.unary(methods.ListNetworks, ListNetworksRequest.create({}), options),
      channel.unary(methods.ListSecrets, ListSecretsRequest.create({}), options),
      channel.unary(methods.ListConfigs, ListConfigsRequest.create({}), options),
    ]);
    const names = new Map([...networks, ...secrets, ...configs].map((item: Named) => [item.id, nameOf(item)]));
    const shown = <Item extends Named>(
      items: readonly Item[],
      json: (item: Item) => unknown,
    ): Record<string, unknown> => {
      const own = items.filter(({ spec }) => spec?.annotations?.labels["com.docker.stack.namespace"] === stack);
      const pairs = own.map((item) => {
        // Engines before Docker 25 do not write the one, and later ones write the other.
        let text = JSON.stringify(ordered(json(item)))
          .replaceAll('"startInterval":{},', "")
          .replaceAll('"options":"null",', "");
        for (const [id, name] of names) text = text.replaceAll(id, name);
        return [nameOf(item), JSON.parse(text.replaceAll(stack, "STACK"))] as const;
      });
      return ordered(Object.fromEntries(pairs.map(([name, value]) => [name.replace(stack, "STACK"), value]))) as Record<
        string,
        unknown
      >;
    };
    return {
      services: shown(services, ({ spec }) => ServiceSpec.toJson(spec ?? ServiceSpec.create({}))),
      networks: shown(networks, ({ spec }) => NetworkSpec.toJson(spec ?? NetworkSpec.create({}))),
      secrets: shown(secrets, ({ spec }) => SecretSpec.toJson(spec ?? SecretSpec.create({}))),
      configs: shown(configs, ({ spec }) => ConfigSpec.toJson(spec ?? ConfigSpec.create({}))),
    };
  } finally {
    channel.close();
  }
}

interface Stocks {
  readonly socket: string;
  readonly folder: string;
  /** Each with `STACK` set to the stack's name. */
  docker(stack: string, ...args: readonly string[]): Promise<string>;
  muster(stack: string, ...args: readonly string[]): Promise<string>;
}

async function stocks(t: ExecutionContext): Promise<Stocks> {
  const engine = await startEngine(t);
  await engine.docker("swarm", "init", "--advertise-addr", engine.host, "--listen-addr", `${engine.host}:2398`);
  await engine.docker("network", "create", "-d", "overlay", "outside");
  const folder = join(engine.dir, "project");
  mkdirSync(join(folder, "sub"), { recursive: true });
  writeFileSync(join(folder, "key.txt"), "hidden");
  writeFileSync(join(folder, "settings.ini"), "a = 1\n");
  writeFileSync(join(folder, "vars.env"), "# variables\nFROM_FILE=1\nOTHER=x y\n");
  await engine.docker("secret", "create", "outer-key", join(folder, "key.txt"));
  await engine.docker("config", "create", "outer-settings", join(folder, "settings.ini"));
  const socket = await plainControlSocket(t, engine);
  const at = `unix://${join(engine.dir, "docker.sock")}`;
  const call = async (stack: string, command: string, args: readonly string[]): Promise<string> => {
    const env = { ...process.env, STACK: stack, SET: "yes", EMPTY: "", COUNT: "3" };
    const { stdout, stderr } = await run(command, [...args], { cwd: folder, env, timeout: 60_000 });
    return stdout + stderr;
  };
  return {
    socket,
    folder,
    docker: (stack, ...args) => call(stack, "docker", ["-H", at, ...args]),
    muster: (stack, ...args) => call(stack, muster, ["-H", socket, ...args]),
  };
}

test("stack deploy produces what Docker's client does from the same files", async (t) => {
  t.timeout(patient(300_000));
  const { docker, muster: ours, folder, socket } = await stocks(t);
  writeFileSync(join(folder, "override.yaml"), overrideFile);
  // A stock manager rejects the removal of a network until it has checked its tasks, and the client gives up.
  const removed = (stack: string): Promise<unknown> =>
    until("the stack to be removed", () => docker(stack, "stack", "rm", stack));
  for (const [at, [title, text]] of Object.entries(composeFiles).entries()) {
    // A new name each time: Docker's removal of a stack leaves a network behind for a moment.
    const [theirs, mine] = [`stack-a${at}-`, `stack-b${at}-`];
    writeFileSync(join(folder, "compose.yaml"), text);
    const files = ["-c", "compose.yaml", ...(title.includes("override") ? ["-c", "override.yaml"] : [])];
    await docker(theirs, "stack", "deploy", "--detach=true", "--resolve-image", "never", ...files, theirs);
    const expected = await picture(socket, theirs);
    t.not(Object.keys(expected.services).length, 0, title);
    // Both would publish the same ports.
    await removed(theirs);
    await ours(mine, "stack", "deploy", "--detach", "--resolve-image", "never", ...files, mine);
    t.deepEqual(await picture(socket, mine), expected, title);
    if (at > 0) await removed(mine);
    else {
      await ours(mine, "stack", "rm", mine);
      t.deepEqual(await picture(socket, mine), { services: {}, networks: {}, secrets: {}, configs: {} });
    }
  }
});

test("a second deployment changes nothing on a stock manager, whichever client made the first", async (t) => {
  t.timeout(patient(300_000));
  const { docker, muster: ours, folder } = await stocks(t);
  for (const title of ["plain", "container", "deploy", "networks", "mounts", "secrets and configs"]) {
    writeFileSync(join(folder, "compose.yaml"), composeFiles[title] ?? "");
    const stack = `both-${title.charAt(0)}`;
    const deploy = ["stack", "deploy", "--detach", "--resolve-image", "never", "-c", "compose.yaml", stack];
    await docker(stack, ...deploy);
    const said = (await ours(stack, ...deploy)).trim().split("\n");
    t.true(said.length > 0 && said.every((line) => line.startsWith(`Unchanged service ${stack}_`)), said.join("\n"));
  }
});

const labTest = (engineMissing() ?? labMissing()) === null ? anyTest.serial : anyTest.serial.skip;

const shop = `
services:
  web:
    image: bb:1
    command: ["sh", "-c", "mkdir -p /www && cat /run/secrets/key /etc/settings > /www/index.html && exec httpd -f -p 80 -h /www"]
    stop_signal: SIGKILL
    networks: [back]
    secrets: [key]
    configs: [{source: settings, target: /etc/settings}]
    deploy: {replicas: 2, endpoint_mode: dnsrr, update_config: {monitor: 1s}}
  client:
    image: bb:1
    command: sleep 1000
    stop_signal: SIGKILL
    depends_on: [web]
    networks: {back: {aliases: [visitor]}}
    deploy: {update_config: {monitor: 1s}}
  each:
    image: bb:1
    command: ["sleep", "1000"]
    stop_signal: SIGKILL
    volumes: ["scratch:/scratch"]
    tmpfs: /t:size=1m
    deploy: {mode: global, update_config: {monitor: 1s}}
networks:
  back: {attachable: true}
volumes:
  scratch: {labels: {a: b}}
secrets:
  key: {file: key.txt}
configs:
  settings: {content: "; colour = \${COLOUR:-green}"}
`;

labTest(
  "three services of a Compose file run on two stock engines, and reach each other, secret and config",
  async (t) => {
    t.timeout(patient(300_000));
    const { manager, members } = await labSwarm(t);
    const folder = tempDir(t, "shop");
    writeFileSync(join(folder, "compose.yaml"), shop);
    writeFileSync(join(folder, "key.txt"), "open sesame");
    const deployed = await manager.muster("stack", "deploy", "-c", join(folder, "compose.yaml"), "shop");
    const made = deployed
      .trim()
      .split("\n")
      .map((line) => line.replace("Creating ", ""));
    t.deepEqual(made.slice(0, 4), [
      "network shop_back",
      "network shop_default",
      "secret shop_key",
      "config shop_settings",
    ]);
    t.deepEqual(made.slice(4), ["service shop_web", "service shop_client", "service shop_each"]);
    t.regex(await manager.muster("stack", "services", "shop"), /shop_each +global +2\/2[^]*shop_web +replicated +2\/2/);

    const containers = async (label: string): Promise<{ engine: DockerEngine; id: string }[]> => {
      const all = await Promise.all(
        members.map(async ({ engine }) => {
          const ids = await engine.docker("ps", "-q", "--filter", `label=${label}`);
          return ids.split("\n").flatMap((id) => (id === "" ? [] : { engine, id }));
        }),
      );
      return all.flat();
    };
    const [client] = await containers("com.docker.swarm.service.name=shop_client");
    if (client === undefined) throw new Error("no client");
    // By the addresses of its tasks: a virtual address needs ip_vs, which not every kernel has.
    const ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 web 80";
    const page = await until("the page by the service's name", async () => {
      const answer = await client.engine.docker("exec", client.id, "sh", "-c", ask).catch(() => "");
      return answer.includes("200 OK") ? answer : false;
    });
    t.true(page.endsWith("open sesame; colour = green"), page);
    const [each] = await containers("com.docker.swarm.service.name=shop_each");
    const mounts = (await each?.engine.docker("exec", each.id, "cat", "/proc/mounts")) ?? "";
    t.regex(mounts, / \/scratch /);
    t.regex(mounts, /^tmpfs \/t tmpfs .*size=1024k/m);
    const volume = await each?.engine.docker("volume", "inspect", "--format", "{{json .Labels}}", "shop_scratch");
    t.deepEqual(JSON.parse(volume ?? ""), { a: "b", "com.docker.stack.namespace": "shop" });

    await manager.muster("stack", "rm", "shop");
    t.deepEqual(await containers("com.docker.stack.namespace=shop"), []);
    t.false(/shop_/.test(await manager.muster("network", "ls")));
    t.is(await manager.muster("secret", "ls", "-q"), "");
  },
);
