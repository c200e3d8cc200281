import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { healthOf } from "../../machines/driver/health-spec.ts";
import {
  Annotations,
  ExecSpec,
  Network,
  NetworkAttachment,
  NetworkSpec,
  Node,
  NodeStatus,
  NodeStatus_State,
  Task,
  TaskState,
  TaskStatus,
  type Service,
} from "../../proto/gen/messages.ts";
import { tempDir } from "../fixtures/muster.ts";
import { served, type Served } from "../support/served.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));

interface Stage extends Served {
  readonly folder: string;
  /** Writes files of the project; returns the folder's path. */
  write(name: string, text: string): string;
  service(name: string): Service;
}

async function stage(t: ExecutionContext): Promise<Stage> {
  const all = await served(t);
  const folder = tempDir(t, "project");
  return {
    ...all,
    folder,
    write(name, text) {
      const path = join(folder, name);
      mkdirSync(join(path, ".."), { recursive: true });
      writeFileSync(path, text);
      return path;
    },
    service(name) {
      const found = all.manager.store.byName("service", name);
      if (found === undefined) throw new Error(`no service ${name}`);
      return found;
    },
  };
}

const shop = `
services:
  web:
    image: nginx:1
    ports: ["8080:80"]
    networks: [front, back]
    secrets: [key]
    configs: [{source: settings, target: /etc/settings}]
    depends_on: [db]
    deploy: {replicas: 2, labels: {tier: front}}
  db:
    image: postgres:1
    networks: [back]
networks:
  front:
  back: {attachable: true}
secrets:
  key: {file: key.txt}
configs:
  settings: {content: "a = 1"}
`;

test("stack deploy creates networks, secrets, configs and services, in this order, with the stack's name and labels", async (t) => {
  const { muster, manager, service, write } = await stage(t);
  write("key.txt", "hidden");
  const file = write("compose.yaml", shop);
  const { lines, remarks, status } = await muster("stack", "deploy", "-d", "-c", file, "shop");
  t.deepEqual(remarks, []);
  t.is(status, 0);
  t.deepEqual(lines, [
    "Creating network shop_back",
    "Creating network shop_front",
    "Creating secret shop_key",
    "Creating config shop_settings",
    "Creating service shop_db",
    "Creating service shop_web",
  ]);
  const web = service("shop_web").spec;
  t.deepEqual(web?.annotations?.labels, {
    tier: "front",
    "com.docker.stack.namespace": "shop",
    "com.docker.stack.image": "nginx:1",
  });
  const back = manager.store.byName("network", "shop_back");
  t.true(back?.spec?.attachable);
  t.is(back?.spec?.driverConfig?.name, "overlay");
  t.deepEqual(
    web?.task?.networks.map(({ target, aliases }) => [target, aliases]),
    ["shop_back", "shop_front"].map((name) => [manager.store.byName("network", name)?.id, ["web"]]),
  );
  t.like(web?.task?.container?.secrets[0], {
    secretId: manager.store.byName("secret", "shop_key")?.id,
    secretName: "shop_key",
    file: { name: "key", mode: 0o444 },
  });
  t.like(web?.task?.container?.configs[0], { configName: "shop_settings", file: { name: "/etc/settings" } });
  t.is(Buffer.from(manager.store.byName("config", "shop_settings")?.spec?.data ?? []).toString(), "a = 1");
  t.is(web?.replicated?.replicas, 2);
});

test("deploying the same files again writes nothing at all", async (t) => {
  const { muster, manager, write } = await stage(t);
  write("key.txt", "hidden");
  const file = write("compose.yaml", shop);
  await muster("stack", "deploy", "-d", "-c", file, "shop");
  const before = manager.store.version;
  const { lines } = await muster("stack", "deploy", "-c", file, "shop");
  t.deepEqual(
    lines.map((line) => line.replace(/ \(id: \w+\)/, "")),
    ["Unchanged service shop_db", "Unchanged service shop_web"],
  );
  t.is(manager.store.version, before);
});

test("a changed file updates what changed, and --prune removes dropped services", async (t) => {
  const { muster, manager, service, write } = await stage(t);
  write("key.txt", "hidden");
  const file = write("compose.yaml", shop);
  await muster("stack", "deploy", "-d", "-c", file, "shop");
  write(
    "compose.yaml",
    shop
      .replace("nginx:1", "nginx:2")
      .replace(/ {2}db:\n.*\n.*\n/, "")
      .replace("depends_on: [db]", ""),
  );
  const said = (await muster("stack", "deploy", "-d", "-c", file, "shop")).lines;
  t.regex(said.join("\n"), /^Updating service shop_web \(id: \w+\)$/);
  t.is(service("shop_web").spec?.task?.container?.image, "nginx:2");
  t.truthy(manager.store.byName("service", "shop_db"));
  const pruned = (await muster("stack", "deploy", "-d", "--prune", "-c", file, "shop")).lines;
  t.is(pruned[0], "Removing service shop_db");
  t.is(manager.store.byName("service", "shop_db"), undefined);
});

test("a pinned image, a forced restart and a login survive a deployment", async (t) => {
  const { muster, service, write } = await stage(t);
  const file = write("compose.yaml", "services: {web: {image: 'nginx:1'}}");
  await muster("stack", "deploy", "-d", "-c", file, "s");
  // Nobody is logged in to this registry: an empty login.
  await muster("stack", "deploy", "-d", "--with-registry-auth", "-c", file, "s");
  const pinned = `nginx:1@sha256:${"a".repeat(64)}`;
  await muster("service", "update", "-d", "--force", "--image", pinned, "s_web");
  const again = await muster("stack", "deploy", "-d", "--resolve-image", "changed", "-c", file, "s");
  t.regex(again.lines.join("\n"), /^Unchanged service s_web/);
  write("compose.yaml", "services: {web: {image: 'nginx:1', user: u}}");
  await muster("stack", "deploy", "-d", "--resolve-image", "changed", "-c", file, "s");
  t.like(service("s_web").spec?.task, {
    forceUpdate: 1,
    container: { image: pinned, user: "u", pullOptions: { registryAuth: "e30=" } },
  });
  await muster("stack", "deploy", "-d", "-c", file, "s");
  t.is(service("s_web").spec?.task?.container?.image, "nginx:1");
});

test("a mistake anywhere leaves the cluster unchanged", async (t) => {
  const { muster, manager, write } = await stage(t);
  const file = write("compose.yaml", shop.replace("file: key.txt", "external: true"));
  const before = manager.store.version;
  const { status, remarks, lines } = await muster("stack", "deploy", "-c", file, "shop");
  t.deepEqual([status, lines], [1, []]);
  t.deepEqual(remarks, [
    "muster: secret 'key' is declared as external, but could not be found: create it before deploying the stack",
  ]);
  t.is(manager.store.version, before);
});

test("different content under the name of a secret or a config is rejected, with what to do", async (t) => {
  const { muster, manager, write } = await stage(t);
  write("key.txt", "hidden");
  const file = write("compose.yaml", shop);
  await muster("stack", "deploy", "-d", "-c", file, "shop");
  const before = manager.store.version;
  write("key.txt", "other");
  const { status, remarks } = await muster("stack", "deploy", "-d", "-c", file, "shop");
  t.is(status, 1);
  t.regex(remarks.join(), /secret shop_key exists with other content, .*set another name/);
  t.false(remarks.join().includes("other\n"));
  write("key.txt", "hidden");
  write("compose.yaml", shop.replace("a = 1", "a = 2"));
  t.regex((await muster("stack", "deploy", "-d", "-c", file, "shop")).remarks.join(), /config shop_settings exists/);
  t.is(manager.store.version, before);
  write("compose.yaml", shop.replace("file: key.txt", "file: key.txt, labels: [new=1]"));
  t.regex((await muster("stack", "deploy", "-d", "-c", file, "shop")).lines[0] ?? "", /^Updating secret shop_key/);
  t.is(manager.store.byName("secret", "shop_key")?.spec?.annotations?.labels["new"], "1");
});

test("stack rm removes services, then secrets, configs and networks, and nothing of other stacks", async (t) => {
  const { muster, manager, write } = await stage(t);
  write("key.txt", "hidden");
  const file = write("compose.yaml", shop);
  await muster("stack", "deploy", "-d", "-c", file, "shop");
  await muster("stack", "deploy", "-d", "-c", file, "shop2").then(({ remarks }) => t.regex(remarks.join(), /port/));
  const { lines, status, remarks } = await muster("stack", "rm", "shop");
  t.deepEqual([status, remarks], [0, []]);
  t.deepEqual(lines, [
    "Removing service shop_db",
    "Removing service shop_web",
    "Removing secret shop_key",
    "Removing config shop_settings",
    "Removing network shop_back",
    "Removing network shop_front",
  ]);
  const left = [...manager.store.all("network")].map(({ spec }) => spec?.annotations?.name);
  t.true(left.includes("shop2_back"));
  t.false(left.includes("shop_back"));
  t.deepEqual((await muster("stack", "rm", "shop")).remarks, ["Nothing found in stack: shop"]);
});

test("stack rm ends even if a node with a task of the stack is lost", async (t) => {
  const { muster, manager, write } = await stage(t);
  const file = write("compose.yaml", "services: {web: {image: nginx:1, networks: [back]}}\nnetworks: {back: }\n");
  await muster("stack", "deploy", "-d", "-c", file, "shop");
  manager.seed("node", Node.create({ id: "n1", status: NodeStatus.create({ state: NodeStatus_State.DOWN }) }));
  const attached = NetworkAttachment.create({ network: manager.store.byName("network", "shop_back") ?? null });
  const serviceId = manager.store.byName("service", "shop_web")?.id ?? "";
  const status = TaskStatus.create({ state: TaskState.RUNNING });
  const serviceAnnotations = Annotations.create({ name: "shop_web" });
  const left = { id: "t1", serviceId, serviceAnnotations, slot: 1, nodeId: "n1", networks: [attached], status };
  manager.seed("task", Task.create({ ...left, desiredState: TaskState.REMOVE }));
  const { lines, remarks, status: ended } = await muster("stack", "rm", "shop");
  t.deepEqual([ended, lines.at(-1)], [0, "Removing network shop_back"]);
  t.deepEqual(remarks, ["shop_web.1.t1 may still be running on n1, which is unreachable"]);
  t.is(manager.store.byName("network", "shop_back"), undefined);
});

test("stack ls, services and ps list the parts of a stack", async (t) => {
  const { muster, manager, write } = await stage(t);
  write("key.txt", "hidden");
  await muster("stack", "deploy", "-d", "-c", write("compose.yaml", shop), "shop");
  await muster("stack", "deploy", "-d", "-c", write("one.yaml", "services: {a: {image: bb}}"), "one");
  const rows = (await muster("stack", "ls")).lines;
  t.regex(rows[0] ?? "", /^NAME +SERVICES$/);
  t.deepEqual(
    rows.slice(1).map((row) => row.split(/ +/)),
    [
      ["one", "1"],
      ["shop", "2"],
    ],
  );
  t.deepEqual((await muster("stack", "ls", "-q")).lines, ["one", "shop"]);
  t.like(JSON.parse((await muster("stack", "ls", "--format", "json")).lines[0] ?? ""), { Name: "one", Services: "1" });
  const services = (await muster("stack", "services", "shop")).lines;
  t.is(services.length, 3);
  t.regex(services[2] ?? "", /shop_web +replicated +0\/2 +nginx:1 +\*:8080->80\/tcp/);
  t.is((await muster("stack", "services", "-q", "--filter", "name=shop_d", "shop")).lines.length, 1);
  t.deepEqual((await muster("stack", "ps", "nope")).remarks, ["muster: nothing found in stack: nope"]);
  t.regex((await muster("stack", "ps", "shop")).lines[0] ?? "", /^ID +NAME +IMAGE +NODE/);
  t.is(manager.store.byName("service", "one_a")?.spec?.task?.networks.length, 1);
});

test("external networks are used under their own names, and must exist", async (t) => {
  const { muster, manager, write, service } = await stage(t);
  const file = write(
    "compose.yaml",
    "services: {a: {image: bb, networks: [out]}}\nnetworks: {out: {external: true, name: shared}}",
  );
  t.deepEqual((await muster("stack", "deploy", "-d", "-c", file, "s")).remarks, [
    "muster: network 'shared' is declared as external, but could not be found: create it before deploying the stack",
  ]);
  manager.seed(
    "network",
    Network.create({ id: "net1", spec: NetworkSpec.create({ annotations: Annotations.create({ name: "shared" }) }) }),
  );
  t.deepEqual((await muster("stack", "deploy", "-d", "-c", file, "s")).lines, ["Creating service s_a"]);
  t.is(service("s_a").spec?.task?.networks[0]?.target, "net1");
});

test("x-muster creates a service of plain processes", async (t) => {
  const { muster, write, service } = await stage(t);
  const text = (more: string): string =>
    `services: {a: {command: sleep 600, environment: {A: 1}, working_dir: /tmp, dns: 192.0.2.1, x-muster: {driver: exec}${more}}}`;
  await muster("stack", "deploy", "-d", "-c", write("c.yaml", text("")), "s");
  const task = service("s_a").spec?.task;
  t.is(task?.networks.length, 0);
  t.like(ExecSpec.decode(task?.generic?.payload?.value ?? new Uint8Array()), {
    command: "sleep",
    args: ["600"],
    env: ["A=1"],
    dir: "/tmp",
    dns: { nameservers: ["192.0.2.1"] },
  });
  t.regex(
    (await muster("stack", "deploy", "-d", "-c", write("c.yaml", text(", volumes: [/x]")), "s")).remarks.join(),
    /c\.yaml:1: services\.a\.volumes is supported for containers only/,
  );
});

test("a service of plain processes is in the networks that it names, and its ports have names", async (t) => {
  const { muster, write, service } = await stage(t);
  const file = write(
    "c.yaml",
    `services:
  a:
    command: postgres
    x-muster: { driver: exec }
    networks: { back: { aliases: [db] } }
    ports: [{ name: sql, mode: host, target: 5432, published: "5433" }]
  b: { command: sleep 1d, x-muster: { driver: exec } }
networks: { back: {} }
`,
  );
  t.deepEqual((await muster("stack", "deploy", "-d", "-c", file, "s")).lines, [
    "Creating network s_back",
    "Creating service s_a",
    "Creating service s_b",
  ]);
  const { endpoint, task } = service("s_a").spec ?? {};
  t.deepEqual(
    task?.networks.map(({ aliases }) => aliases),
    [["db", "a"]],
  );
  t.like(endpoint?.ports[0], { name: "sql", targetPort: 5_432, publishedPort: 5_433 });
  t.is(service("s_b").spec?.task?.networks.length, 0, "without 'networks' it uses its node's");
});

test("a service of plain processes gets the file's health check, or one that only x-muster has", async (t) => {
  const { muster, write, service } = await stage(t);
  const deploy = async (own: string, more: string) => {
    const text = `services: {a: {command: sleep 600, x-muster: {driver: exec${own}}${more}}}`;
    const { remarks } = await muster("stack", "deploy", "-d", "-c", write("c.yaml", text), "s");
    return { said: remarks.join(), health: healthOf(service("s_a").spec?.task ?? null) };
  };
  const times = "interval: 10s, timeout: 2s, retries: 2, start_period: 1m, start_interval: 1s";
  const { health } = await deploy("", `, healthcheck: {test: "curl -f localhost", ${times}}`);
  t.like(health, { command: ["/bin/sh", "-c", "curl -f localhost"], retries: 2 });
  t.deepEqual(
    [health?.interval, health?.timeout, health?.startPeriod, health?.startInterval].map((time) => time?.seconds),
    [10, 2, 60, 1],
  );
  t.deepEqual((await deploy("", ", healthcheck: {test: [CMD, pg_isready, -q]}")).health?.command, ["pg_isready", "-q"]);
  const http = await deploy(", health_http: 'http://a.b:8080/c'", ", healthcheck: {interval: 3s}");
  t.like(http.health?.http, { host: "a.b:8080", port: 8080, path: "/c" });
  t.is(http.health?.interval?.seconds, 3);
  t.is((await deploy(", health_tcp: ':9'", "")).health?.tcp?.port, 9);
  t.is((await deploy("", ", healthcheck: {disable: true}")).health, null);
  for (const [own, more, message] of [
    ["", ", healthcheck: {interval: 3s}", /healthcheck does not set a test/],
    [", health_tcp: ':9'", ", healthcheck: {test: x}", /x-muster sets more than one health check/],
    [", health_tcp: db", "", /x-muster\.health_tcp must be :PORT, not 'db'/],
    [", health_udp: ':9'", "", /health_udp is unknown: x-muster supports driver, health_http, health_tcp/],
    ["", ", healthcheck: {test: [SHELL, x]}", /must be a string, or a list that begins with NONE, CMD or CMD-SHELL/],
  ] as const)
    t.regex((await deploy(own, more)).said, message);
});

test("a service of plain processes is granted secrets and configs, which its nodes receive", async (t) => {
  const { muster, write, service } = await stage(t);
  const text = [
    "services: {a: {command: sleep 600, x-muster: {driver: exec}, secrets: [p], configs: [{source: c, target: /etc/c}]}}",
    "secrets: {p: {file: ./p}}",
    "configs: {c: {content: green}}",
  ].join("\n");
  write("p", "hidden");
  t.is((await muster("stack", "deploy", "-d", "-c", write("c.yaml", text), "s")).status, 0);
  const task = service("s_a").spec?.task;
  const { configs, secrets } = ExecSpec.decode(task?.generic?.payload?.value ?? new Uint8Array());
  t.deepEqual(
    secrets.map(({ file, secretName }) => [secretName, file?.name, file?.mode]),
    [["s_p", "p", 0o444]],
  );
  t.deepEqual(
    configs.map(({ configName, file }) => [configName, file?.name]),
    [["s_c", "/etc/c"]],
  );
  t.deepEqual(
    task?.resourceReferences.map(({ resourceId }) => resourceId),
    [secrets[0]?.secretId, configs[0]?.configId],
  );
  t.regex((await muster("secret", "rm", "s_p")).remarks.join(), /secret 's_p' is in use by the following service: s_a/);
  t.regex((await muster("stack", "deploy", "-d", "-c", write("c.yaml", text), "s")).lines.join(), /Unchanged service/);
});

test("options without meaning in a cluster are named once and ignored", async (t) => {
  const { muster, write } = await stage(t);
  const text =
    "services:\n  a: {image: bb, build: ., privileged: true, ports: ['127.0.0.1:80:80']}\n  b: {image: bb, build: .}\n";
  const { remarks, status } = await muster("stack", "deploy", "-d", "-c", write("c.yaml", text), "s");
  t.is(status, 0);
  t.deepEqual(remarks, [
    "warning: Ignoring unsupported options: build, privileged",
    "warning: ignoring the host IPs of ports (127.0.0.1): a service's ports are published on all addresses of a node",
  ]);
});

test("invalid stack names, and commands without files, are rejected", async (t) => {
  const { muster } = await stage(t);
  t.like(await muster("stack", "deploy", "s"), { status: 125 });
  t.like(await muster("stack", "deploy", "-c", "x", " "), { status: 1 });
  t.like(await muster("stack", "deploy", "-c", "/nowhere/x.yaml", "s"), {
    status: 1,
    remarks: ["muster: cannot read the Compose file /nowhere/x.yaml: no such file or directory"],
  });
  t.like(await muster("stack", "deploy", "--resolve-image", "often", "-c", "x", "s"), { status: 125 });
});

test("a Compose file comes from standard input, and stack config prints one that can be deployed again", async (t) => {
  const folder = tempDir(t, "stdin");
  const run = (input: string, ...args: readonly string[]): string =>
    execFileSync(process.execPath, [main, ...args], {
      input,
      cwd: folder,
      encoding: "utf8",
      env: { ...process.env, A: "x" },
    });
  const text = "services: {a: {image: 'bb:$A', command: echo $$HOME, ports: ['80:80'], volumes: ['./d:/d']}}";
  const yaml = run(text, "stack", "config", "-c", "-");
  t.regex(yaml, /image: bb:x\n[^]*- \$\$HOME\n[^]*published: 80\n[^]*source: .*stdin.*\/d\n/);
  t.is(run(yaml, "stack", "config", "-c", "-"), yaml);
  t.like(JSON.parse(run(text, "stack", "config", "--format", "json", "--skip-interpolation", "-c", "-")), {
    services: { a: { image: "bb:$A", command: ["echo", "$$HOME"] } },
  });
});

test("stack config reports what stack deploy rejects without asking the cluster", async (t) => {
  const { muster, write } = await stage(t);
  const wrong: readonly (readonly [text: string, error: RegExp])[] = [
    [
      "services: {a: {image: bb, depends_on: [b]}}",
      /c\.yaml:1: services\.a\.depends_on refers to the service 'b', which the project does not define/,
    ],
    [
      "services: {a: {image: bb, depends_on: [b]}, b: {image: bb, depends_on: [c]}, c: {image: bb, depends_on: [b]}}",
      /services\.c\.depends_on is a dependency cycle: b -> c -> b/,
    ],
    ["services: {a: {image: bb, depends_on: [a]}}", /services\.a\.depends_on is a dependency cycle: a -> a/],
    ["services: {a: {image: bb, networks: [n]}}", /services\.a\.networks\.n is not defined in 'networks'/],
    [
      "services: {a: {image: bb, deploy: {placement: {constraints: ['node.hostname=x']}}}}",
      /service a: constraint expected one operator/,
    ],
    ["services: {a: {image: bb, secrets: [s]}}\nsecrets: {s: {file: ./nothing}}", /nothing/],
  ];
  for (const [text, error] of wrong) {
    const file = write("c.yaml", text);
    const found = await muster("stack", "config", "-c", file);
    t.is(found.status, 1, text);
    t.regex(found.remarks.join("\n"), error);
    t.deepEqual((await muster("stack", "deploy", "-d", "-c", file, "s")).remarks, found.remarks, text);
  }
  const optional = "services: {a: {image: bb, depends_on: {b: {condition: service_started, required: false}}}}";
  t.is((await muster("stack", "config", "-c", write("c.yaml", optional))).status, 0);
});

test("a network that differs from the file causes a warning, and stays", async (t) => {
  const { muster, manager, write } = await stage(t);
  const text = (ipam: string): string =>
    `services: {a: {image: bb, networks: [n]}}\nnetworks: {n: {ipam: {config: [{${ipam}}]}}}`;
  const file = write("c.yaml", text("subnet: 10.9.0.0/24, aux_addresses: {r: 10.9.0.9}"));
  t.deepEqual((await muster("stack", "deploy", "-d", "-c", file, "s")).remarks, []);
  t.deepEqual((await muster("stack", "deploy", "-d", "-c", file, "s")).remarks, []);
  t.deepEqual(manager.store.byName("network", "s_n")?.spec?.ipam?.configs[0]?.reserved, { r: "10.9.0.9" });
  write("c.yaml", text("subnet: 10.8.0.0/24"));
  t.deepEqual((await muster("stack", "deploy", "-d", "-c", file, "s")).remarks, [
    "warning: network s_n keeps its settings, which differ from the file: networks cannot be changed",
  ]);
  t.is(manager.store.byName("network", "s_n")?.spec?.ipam?.configs[0]?.subnet, "10.9.0.0/24");
});
