// The value syntax of a service's flags, and how updates change existing values. test/interop/service-cli.test.ts shows that
// the specs equal those of Docker's own client; this file covers what Docker's client cannot show.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import { parsePublish, portsAfter } from "../../cli/publish-flag.ts";
import { capabilitiesAfter, newCapabilities } from "../../cli/service/capabilities.ts";
import { newEnvironment } from "../../cli/service/environment.ts";
import { createFlags, updateFlags, type CreateValues } from "../../cli/service/flags.ts";
import { mountsAfter, parseMount } from "../../cli/service/mount-flag.ts";
import { parseNetwork, type Lookups } from "../../cli/service/references.ts";
import { registryAuth, registryOf } from "../../cli/service/registry-auth.ts";
import { changedSpec, newSpec } from "../../cli/service/spec.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { bytesText } from "../../machines/bytes-text.ts";
import { csvFields, durationText, parseDuration, shellWords } from "../../cli/values.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import {
  DriverSpec,
  ExecSpec,
  Mount_Consistency,
  Mount_Type,
  PortConfig_PublishMode,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";

/** Every flag of `docker service create --help` and `docker service update --help` of Docker 28, except --help itself. */
const dockerCreate =
  "cap-add cap-drop config constraint container-label credential-spec detach dns dns-option dns-search endpoint-mode " +
  "entrypoint env env-file generic-resource group health-cmd health-interval health-retries health-start-interval " +
  "health-start-period health-timeout host hostname init isolation label limit-cpu limit-memory limit-pids log-driver " +
  "log-opt max-concurrent mode mount name network no-healthcheck no-resolve-image oom-score-adj placement-pref publish " +
  "quiet read-only replicas replicas-max-per-node reserve-cpu reserve-memory restart-condition restart-delay " +
  "restart-max-attempts restart-window rollback-delay rollback-failure-action rollback-max-failure-ratio " +
  "rollback-monitor rollback-order rollback-parallelism secret stop-grace-period stop-signal sysctl tty ulimit " +
  "update-delay update-failure-action update-max-failure-ratio update-monitor update-order update-parallelism user " +
  "with-registry-auth workdir";
const dockerUpdate =
  "args cap-add cap-drop config-add config-rm constraint-add constraint-rm container-label-add container-label-rm " +
  "credential-spec detach dns-add dns-option-add dns-option-rm dns-rm dns-search-add dns-search-rm endpoint-mode " +
  "entrypoint env-add env-rm force generic-resource-add generic-resource-rm group-add group-rm health-cmd " +
  "health-interval health-retries health-start-interval health-start-period health-timeout host-add host-rm hostname " +
  "image init isolation label-add label-rm limit-cpu limit-memory limit-pids log-driver log-opt max-concurrent " +
  "mount-add mount-rm network-add network-rm no-healthcheck no-resolve-image oom-score-adj placement-pref-add " +
  "placement-pref-rm publish-add publish-rm quiet read-only replicas replicas-max-per-node reserve-cpu reserve-memory " +
  "restart-condition restart-delay restart-max-attempts restart-window rollback rollback-delay rollback-failure-action " +
  "rollback-max-failure-ratio rollback-monitor rollback-order rollback-parallelism secret-add secret-rm " +
  "stop-grace-period stop-signal sysctl-add sysctl-rm tty ulimit-add ulimit-rm update-delay update-failure-action " +
  "update-max-failure-ratio update-monitor update-order update-parallelism user with-registry-auth workdir";

const spec = (flags: CreateValues, ...words: string[]) => newSpec({ name: "web", ...flags }, ["bb:1", ...words]);

test("every flag of Docker's exists", (t) => {
  t.deepEqual(
    dockerCreate.split(" ").filter((flag) => !Object.hasOwn(createFlags, flag)),
    [],
  );
  t.deepEqual(
    dockerUpdate.split(" ").filter((flag) => !Object.hasOwn(updateFlags, flag)),
    [],
  );
});

test("flags for tasks on nodes that are down set labels", (t) => {
  const labelsOf = ({ annotations }: ServiceSpec) => annotations?.labels ?? {};
  const created = spec({ "on-disconnect": "keep", label: ["a=b"] });
  t.deepEqual(labelsOf(created), { a: "b", "muster.on-disconnect": "keep" });
  const late = changedSpec(created, { "on-disconnect": "replace", "disconnect-after": "10m" });
  t.deepEqual(labelsOf(late), { a: "b", "muster.disconnect-after": "10m0s" });
  t.deepEqual(labelsOf(changedSpec(late, { "on-disconnect": "keep" })), labelsOf(created), "the time is dropped");
  t.deepEqual(labelsOf(changedSpec(late, { "label-rm": ["a"] })), { "muster.disconnect-after": "10m0s" });
});

const refusals: readonly (readonly [CreateValues, RegExp, (typeof UsageError | typeof UserError)?])[] = [
  [{ "cap-add": ["a"], "health-cmd": "x", "no-healthcheck": true }, /no-healthcheck conflicts/, UserError],
  [{ "health-interval": "-1s" }, /health-interval cannot be negative/],
  [{ "limit-cpu": "0.0000000001" }, /billionth/],
  [{ "update-parallelism": "-1" }, /^--update-parallelism cannot be negative$/],
  [{ "rollback-parallelism": "-1" }, /^--rollback-parallelism cannot be negative$/],
  [{ "restart-max-attempts": "-1" }, /^--restart-max-attempts cannot be negative$/],
  [{ "replicas-max-per-node": "-1" }, /^--replicas-max-per-node cannot be negative$/],
  [{ replicas: "18446744073709551617" }, /--replicas: 18446744073709551617 is out of range/],
  [{ "limit-pids": "99999999999999999999" }, /--limit-pids: .* is out of range/],
  [{ "generic-resource": ["gpu=99999999999999999999"] }, /out of range/],
  [{ label: [""] }, /invalid argument "" for "--label" flag: expected KEY=VALUE/],
  [{ label: ["=b"] }, /for "--label" flag: expected KEY=VALUE/],
  [{ label: ["a b=c"] }, /the key of "a b=c" contains blanks/],
  [{ "container-label": ["a\tb"] }, /^--container-label: the key of ".*" contains blanks/],
  [{ "log-opt": ["=x"] }, /for "--log-opt" flag: expected KEY=VALUE/],
  [{ "limit-cpu": "half" }, /for "--limit-cpu" flag: expected a number of cores/],
  [{ "reserve-memory": "some" }, /for "--reserve-memory" flag: expected a size/],
  [{ "on-disconnect": "wait" }, /for "--on-disconnect" flag: expected one of keep, replace/],
  [{ "disconnect-after": "-1s" }, /^--disconnect-after cannot be negative$/],
  [{ "restart-condition": "always" }, /for "--restart-condition" flag: expected one of none, on-failure, any/],
  [{ "rollback-failure-action": "rollback" }, /for "--rollback-failure-action" flag: expected one of pause, continue/],
  [{ "update-order": "random" }, /for "--update-order" flag: expected one of/],
  [{ "update-max-failure-ratio": "x" }, /for "--update-max-failure-ratio" flag: expected a number/],
  [{ "endpoint-mode": "x" }, /for "--endpoint-mode" flag: expected one of vip, dnsrr/],
  [{ "generic-resource": ["gpu"] }, /for "--generic-resource" flag: expected KIND=COUNT/],
  [{ "generic-resource": ["gpu=id1"] }, /cannot ask for units by name/],
  [{ "generic-resource": ["gpu=1", "gpu=2"] }, /sets "gpu" more than once/],
  [{ "placement-pref": ["binpack=x"] }, /for "--placement-pref" flag: expected spread=LABEL/],
  [{ ulimit: ["files=1"] }, /for "--ulimit" flag: expected a limit/],
  [{ ulimit: ["nofile=2:1"] }, /soft limit/],
  [{ host: ["db"] }, /for "--host" flag: expected NAME:IP/],
  [{ host: ["db:1.2.3"] }, /for "--host" flag: expected NAME:IP/],
  [{ dns: ["one"] }, /for "--dns" flag: expected an IP address/],
  [{ "dns-search": ["a b"] }, /for "--dns-search" flag: expected a domain/],
  [{ "oom-score-adj": "1001" }, /-1000 to 1000/],
  [{ isolation: "some" }, /for "--isolation" flag: expected one of/],
  [{ "credential-spec": "x" }, /for "--credential-spec" flag: expected config:/],
  [{ env: ["=x"] }, /for "--env" flag: expected NAME=VALUE/],
  [{ "env-file": ["/nowhere/env"] }, /cannot read the environment file \/nowhere\/env/, UserError],
  [{ entrypoint: "sh 'x" }, /missing closing quote/],
  [{ network: ["nope"] }, /^network nope not found$/, UserError],
  [{ network: ["alias=x"] }, /name=NETWORK is required/],
  [{ network: ["name=x,ip=1.2.3.4"] }, /unknown field "ip": expected name, alias, driver-opt/],
  [{ secret: ["nope"] }, /^secret not found: nope$/, UserError],
  [{ secret: ["target=x"] }, /source=NAME is required/],
  [{ config: ["nope"] }, /^config not found: nope$/, UserError],
  [{ config: ["source=a,mode=rw"] }, /expected a mode such as 0440/],
  [{ secret: ["a", "source=b,target=a"] }, /duplicate secret target for b not allowed/, UserError],
  [{ mount: ["type=bind,target=/x"] }, /source=PATH is required for a bind mount/],
  [{ mount: ["type=bind,source=/a,target=/x,volume-nocopy"] }, /volume-… options are not supported/],
  [{ mount: ["type=volume,target=/x,tmpfs-size=1m"] }, /tmpfs-… options are not supported/],
  [{ mount: ["type=bind,source=/a,target=/x,bind-recursive=writable"] }, /=writable requires readonly/],
  [
    { mount: ["type=bind,source=/a,target=/x,ro,bind-recursive=readonly,bind-propagation=rshared"] },
    /requires bind-propagation=rprivate/,
  ],
  [{ mount: ["type=tape,target=/x"] }, /expected one of bind, volume/],
  [{ mount: ["source=x"] }, /target=PATH is required/],
  [{ mount: ["target=/x,colour=red"] }, /unknown field "colour"/],
  [{ mount: ["target"] }, /invalid field "target": expected KEY=VALUE/],
  [{ mount: ["type=tmpfs,target=/x,tmpfs-mode=9"] }, /octal/],
  [{ mount: [`target=/x,"source=a`] }, /quotes/],
  [{ publish: ["1.2.3.4:80:80"] }, /published on all addresses/],
  [{ publish: ["8000-8001:80-83"] }, /differ in length/],
  [{ publish: ["8001-8000:80"] }, /the end is below the start/],
  [{ publish: ["80/icmp"] }, /expected one of tcp, udp, sctp/],
  [{ mode: "global", "replicas-max-per-node": "1" }, /can only be used with replicated/, UserError],
  [{ mode: "global-job", replicas: "2" }, /can only be used with replicated/, UserError],
  [{ "max-concurrent": "1" }, /can only be used with replicated-job/, UserError],
  [{ mode: "replicated-job", "update-delay": "1s" }, /not supported for jobs/, UserError],
  [{ mode: "other" }, /for "--mode" flag: expected one of/],
  [{ driver: "exec", "read-only": true }, /--read-only is supported for containers only/],
];

for (const [flags, words, kind = UsageError] of refusals) {
  test(`one sentence says what is wrong with ${JSON.stringify(flags)}`, (t) => {
    const error = t.throws(() => spec(flags), { instanceOf: kind, message: words });
    t.notRegex(error?.message ?? "", /\n/);
  });
}

test("a CSV value keeps together what it quotes", (t) => {
  t.deepEqual(csvFields(`a=b,"c=d,e",f`, "x"), ["a=b", "c=d,e", "f"]);
  t.deepEqual(csvFields(`"a""b",`, "x"), [`a"b`, ""]);
  t.throws(() => csvFields(`a"b`, "x"), { instanceOf: UsageError });
  fc.assert(
    fc.property(fc.array(fc.string({ minLength: 1 }), { minLength: 1 }), (fields) => {
      const line = fields.map((field) => `"${field.replaceAll('"', '""')}"`).join(",");
      t.deepEqual(csvFields(line, "x"), fields);
    }),
  );
});

test("a command line is split into words as a shell does it", (t) => {
  t.deepEqual(shellWords(`sh -c "a  b" 'c "d"' e\\ f ""`, "x"), ["sh", "-c", "a  b", 'c "d"', "e f", ""]);
  t.deepEqual(shellWords(`a"b c"d`, "x"), ["ab cd"]);
  t.deepEqual(shellWords("  ", "x"), []);
  t.throws(() => shellWords("a\\", "x"), { instanceOf: UsageError });
  fc.assert(
    fc.property(fc.array(fc.string()), (words) => {
      const line = words.map((word) => `'${word.replaceAll("'", `'"'"'`)}'`).join(" ");
      t.deepEqual(shellWords(line, "x"), words);
    }),
  );
});

test("durations and sizes are written as Docker writes them", (t) => {
  for (const text of ["0s", "1.5s", "1m30s", "2h0m5s", "500ms", "250µs", "7ns"]) {
    t.is(durationText(parseDuration(text, "x")), text);
  }
  t.deepEqual([bytesText(0), bytesText(64 * 1024 ** 2), bytesText(1_500_000_000)], ["0B", "64MiB", "1.397GiB"]);
});

test("ports may be ranges, and one target may have a range in front", (t) => {
  const pairs = (text: string) => parsePublish(text).map((port) => [port.publishedPort, port.targetPort]);
  t.deepEqual(pairs("8000-8002:80-82"), [
    [8000, 80],
    [8001, 81],
    [8002, 82],
  ]);
  t.deepEqual(pairs("8000-8001:80"), [
    [8000, 80],
    [8001, 80],
  ]);
});

test("a port's name keeps its case, and an existing port can get a name", (t) => {
  const [port] = parsePublish("NAME=Sql,mode=HOST,target=5432,published=5433");
  t.like(port, { name: "Sql", targetPort: 5_432, publishedPort: 5_433, publishMode: PortConfig_PublishMode.HOST });
  const before = parsePublish("5433:5432");
  t.deepEqual(
    portsAfter(before, ["name=sql,target=5432,published=5433"], []).map(({ name }) => name),
    ["sql"],
  );
  t.deepEqual(
    portsAfter(parsePublish("name=sql,target=5432,published=5433"), ["5433:5432"], []).map(({ name }) => name),
    ["sql"],
    "a port that is added without a name keeps its existing one",
  );
  t.throws(() => parsePublish("name=a b,target=1"), { message: /--publish: invalid name "a b"/ });
});

test("a port removed and added again exists, and the short form removes a host port too", (t) => {
  const before = [...parsePublish("8080:80"), ...parsePublish("mode=host,target=81,published=8081")];
  t.deepEqual(
    portsAfter(before, ["8080:80"], ["80"]).map(({ publishedPort }) => publishedPort),
    [8080, 8081],
  );
  t.deepEqual(
    portsAfter(before, [], ["81"]).map(({ targetPort }) => targetPort),
    [80],
  );
  t.is(portsAfter(before, [], ["mode=ingress,target=81"]).length, 2);
  t.is(portsAfter(before, [], ["80/udp"]).length, 2);
  t.is(portsAfter(before, [], ["mode=host,target=81"])[0]?.publishMode, PortConfig_PublishMode.INGRESS);
});

test("newer kinds of mounts are supported, and one target has one mount", (t) => {
  const bind = parseMount("type=bind,source=./x,target=/t,readonly,bind-recursive=readonly,bind-create-src");
  t.true(bind.source.startsWith("/") && bind.source.endsWith("/x"));
  t.like(bind.bindOptions, { readonlyforcerecursive: true, createmountpoint: true });
  t.is(parseMount("type=volume,source=v,target=/t,volume-subpath=a/b").volumeOptions?.subpath, "a/b");
  t.is(parseMount("target=/t,consistency=cached").consistency, Mount_Consistency.CACHED);
  t.is(parseMount("type=cluster,source=group:g,target=/t").type, Mount_Type.CLUSTER);
  t.throws(() => parseMount("type=bind,source=/x,target=/t,bind-recursive=readonly"), { instanceOf: UsageError });
  t.throws(() => mountsAfter([], ["target=/a", "type=tmpfs,target=/a"], []), { instanceOf: UserError });
});

test("capabilities form one set in one notation", (t) => {
  t.deepEqual(newCapabilities(["chown", "CAP_CHOWN"], ["sys_time", "chown"]), {
    capabilityAdd: ["CAP_CHOWN"],
    capabilityDrop: ["CAP_SYS_TIME"],
  });
  const dropped = newCapabilities([], ["chown"]);
  const neither = capabilitiesAfter(dropped, ["chown"], []);
  t.deepEqual(neither, { capabilityAdd: [], capabilityDrop: [] });
  t.deepEqual(capabilitiesAfter(neither, ["chown"], []).capabilityAdd, ["CAP_CHOWN"]);
});

test("when a variable has two values the later wins, and a file's come first", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-env-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "env");
  writeFileSync(file, "# comment\nA=file\n\n  B=b c \nUNSET_IN_HERE\n");
  t.deepEqual(newEnvironment({ "env-file": [file], env: ["A=flag", "UNSET_IN_HERE"] }), [
    "B=b c ",
    "A=flag",
    "UNSET_IN_HERE",
  ]);
  writeFileSync(file, "not a name=1\n");
  t.throws(() => newEnvironment({ "env-file": [file] }), { message: /invalid variable name "not a name"/ });
});

test("a service of processes gets its secrets and configs by name, and its nodes' manager learns what to send", (t) => {
  const lookups: Lookups = { network: (name) => name, secret: (name) => `id-${name}`, config: (name) => `id-${name}` };
  const flags = { name: "p", driver: "exec", secret: ["a", "source=b,target=c"], config: ["k"] } as const;
  const made = newSpec({ ...flags, secret: [...flags.secret], config: [...flags.config] }, ["sleep", "1"], lookups);
  const filesOf = (of: typeof made) => {
    const { configs, secrets } = ExecSpec.decode(of.task?.generic?.payload?.value ?? new Uint8Array());
    return [
      ...secrets.map(({ secretName, file }) => `${secretName}:${file?.name}`),
      ...configs.map((each) => each.configName),
    ];
  };
  const sent = (of: typeof made) => of.task?.resourceReferences.map(({ resourceId }) => resourceId);
  t.deepEqual(filesOf(made), ["a:a", "b:c", "k"]);
  t.deepEqual(sent(made), ["id-a", "id-b", "id-k"]);
  const after = changedSpec(made, { "secret-rm": ["b"], "secret-add": ["d"], "config-rm": ["k"] }, lookups);
  t.deepEqual(filesOf(after), ["a:a", "d:d"]);
  t.deepEqual(sent(after), ["id-a", "id-d"]);
});

test("a process has only variables with values, and accepts settings of its own kind", (t) => {
  const flags = { name: "p", driver: "exec", env: ["A=1", "UNSET_IN_HERE"], user: "nobody", workdir: "/w" } as const;
  const before = newSpec({ ...flags, env: [...flags.env] }, ["sleep", "1"]);
  const exec = (of: typeof before) => ExecSpec.decode(of.task?.generic?.payload?.value ?? new Uint8Array());
  t.like(exec(before), { command: "sleep", args: ["1"], env: ["A=1"], user: "nobody", dir: "/w" });
  const after = changedSpec(before, { args: `"2 3"`, "env-add": ["B=2"], "stop-signal": "INT", replicas: "4" });
  t.like(exec(after), { args: ["2 3"], env: ["A=1", "B=2"], stopSignal: "INT" });
  t.is(after.replicated?.replicas, 4);
  t.throws(() => changedSpec(before, { "mount-add": ["target=/x"] }), {
    message: /--mount-add: only type=cluster is supported without containers/,
  });
  const unread: CreateValues = { "log-driver": "syslog", "log-opt": ["a=b"] };
  const message = "--log-driver is supported for containers only";
  t.throws(() => newSpec({ ...unread, driver: "exec" }, ["true"]), { message, instanceOf: UsageError });
  t.throws(() => newSpec({ ...unread, driver: "docker", "driver-config": "{}" }, []), { message });
  t.throws(() => changedSpec(before, unread), { message });
});

test("name servers of processes and driver tasks are set with the flags of containers", (t) => {
  const flags: CreateValues = { name: "p", driver: "exec", dns: ["192.0.2.1"], "dns-search": ["x.test"] };
  const process = newSpec(flags, ["true"]);
  const dnsOf = (of: typeof process, codec: Pick<typeof DriverSpec, "decode">) =>
    codec.decode(of.task?.generic?.payload?.value ?? new Uint8Array()).dns;
  const own = ExecSpec as unknown as typeof DriverSpec;
  t.like(dnsOf(process, own), { nameservers: ["192.0.2.1"], search: ["x.test"], options: [] });
  t.is(dnsOf(newSpec({ name: "q", driver: "exec" }, ["true"]), own), null);
  const after = changedSpec(process, { "dns-rm": ["192.0.2.1"], "dns-option-add": ["ndots:1"] });
  t.like(dnsOf(after, own), { nameservers: [], search: ["x.test"], options: ["ndots:1"] });
  t.is(dnsOf(changedSpec(process, { "dns-rm": ["192.0.2.1"], "dns-search-rm": ["x.test"] }), own), null);
  const driven = newSpec({ ...flags, driver: "docker", "driver-config": "{}" }, []);
  t.like(dnsOf(driven, DriverSpec), { nameservers: ["192.0.2.1"] });
  t.like(dnsOf(changedSpec(driven, { "dns-add": ["192.0.2.2"] }), DriverSpec), {
    nameservers: ["192.0.2.1", "192.0.2.2"],
  });
  t.like(dnsOf(changedSpec(driven, { replicas: "2" }), DriverSpec), { nameservers: ["192.0.2.1"] });
});

test("names are resolved before they are written into the spec", (t) => {
  const lookups: Lookups = {
    network: (text) => `id-of-${text}`,
    secret: (name) => `secret-${name}`,
    config: (name) => `config-${name}`,
  };
  t.like(parseNetwork("name=blue,alias=a,alias=b,driver-opt=k=v", lookups), {
    target: "id-of-blue",
    aliases: ["a", "b"],
    driverAttachmentOpts: { k: "v" },
  });
  const made = newSpec({ name: "w", secret: ["s"], "credential-spec": "config://c" }, ["bb"], lookups);
  t.like(made.task?.container?.secrets[0], { secretId: "secret-s", secretName: "s" });
  t.is(made.task?.container?.privileges?.credentialSpec?.config, "config-c");
  t.not(made.task?.container?.configs[0]?.runtime, null);
});

test("the login goes to the registry that the image names", (t) => {
  t.is(registryOf("bb:1"), "https://index.docker.io/v1/");
  t.is(registryOf("team/bb"), "https://index.docker.io/v1/");
  t.is(registryOf("localhost/bb"), "localhost");
  t.is(registryOf("reg.example.org:5000/team/bb"), "reg.example.org:5000");
  const auth = Buffer.from("me:pass:word").toString("base64");
  const config = { auths: { "https://reg.example.org/v1/": { auth } } };
  const decoded = (image: string) =>
    JSON.parse(Buffer.from(registryAuth(image, config), "base64url").toString("utf8")) as unknown;
  t.deepEqual(decoded("reg.example.org/x"), {
    username: "me",
    password: "pass:word",
    serveraddress: "reg.example.org",
  });
  t.deepEqual(decoded("other.example.org/x"), {});
});

test("an update rejects what does not fit the service's mode", (t) => {
  const everywhere = spec({ mode: "global" });
  const job = spec({ mode: "replicated-job", replicas: "2" });
  for (const flags of [{ replicas: "2" }, { "max-concurrent": "1" }, { "replicas-max-per-node": "1" }]) {
    t.throws(() => changedSpec(everywhere, flags), { instanceOf: UserError }, JSON.stringify(flags));
  }
  t.throws(() => changedSpec(job, { "update-delay": "1s" }), { instanceOf: UserError });
  t.like(changedSpec(job, { replicas: "5", "max-concurrent": "1" }).replicatedJob, {
    totalCompletions: 5,
    maxConcurrent: 1,
  });
});

test("an update without flags changes nothing, whatever flags created the service", (t) => {
  const before = spec({
    env: ["A=1"],
    publish: ["8080:80", "79"],
    mount: ["target=/b", "type=tmpfs,target=/a"],
    constraint: ["node.role==worker", "node.id!=x"],
    "placement-pref": ["spread=node.labels.a"],
    "cap-add": ["chown"],
    ulimit: ["nofile=1"],
    host: ["db:1.2.3.4"],
    "health-cmd": "x",
    "update-delay": "3s",
  });
  t.true(isSameMessage(changedSpec(before, {}), before));
});
