// Output of `muster … inspect` and `--format` equals Docker's client's for the same objects: both read one stock manager,
// through its Control socket and through its API.
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { runMuster } from "../fixtures/muster.ts";
import { plainControlSocket } from "../fixtures/stock-control.ts";
import { words } from "../fixtures/swarm.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing() ?? labMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

const create = "service create --detach --no-resolve-image";

const made: readonly string[] = [
  "network create --driver overlay --label a=b --subnet 10.77.0.0/24 back",
  "network create --driver overlay --internal --attachable inner",
  `${create} --name plain bb:1`,
  `${create} --name global --mode global --label x=y --constraint node.role==worker bb:1 sleep 9`,
  `${create} --name job --mode replicated-job --replicas 3 --max-concurrent 2 bb:1`,
  `${create} --name gjob --mode global-job bb:1`,
  [
    `${create} --name full --replicas 2 --label tier=front --label com.example.a=1 --container-label c=d --env A=1 --env B=`,
    "--user 1:2 --workdir /w --group g --hostname h --host a:1.2.3.4 --dns 1.1.1.1 --dns-search x.y --dns-option ndots:2",
    "--mount type=bind,source=/tmp,target=/t,bind-propagation=rslave --mount type=volume,source=v,target=/v,volume-nocopy",
    "--mount type=tmpfs,target=/m,tmpfs-size=1000000,tmpfs-mode=700 --stop-signal TERM --stop-grace-period 3s --tty",
    "--read-only --init --cap-add NET_ADMIN --cap-drop CHOWN --sysctl net.core.somaxconn=9 --ulimit nofile=10:20",
    "--health-cmd true --health-interval 5s --health-retries 2 --health-start-period 1s --limit-cpu .5 --limit-memory 64m",
    "--limit-pids 7 --reserve-cpu .25 --reserve-memory 32m --generic-resource gpu=1 --restart-condition on-failure",
    "--restart-delay 2s --restart-max-attempts 3 --restart-window 9s --constraint node.labels.q==1",
    "--placement-pref spread=node.labels.zone --replicas-max-per-node 2 --update-parallelism 2 --update-delay 1s",
    "--update-failure-action rollback --update-max-failure-ratio .1 --update-order start-first --rollback-parallelism 0",
    "--rollback-monitor 7s --network name=back,alias=z --publish 8080:80 --publish mode=host,target=9,protocol=udp",
    "--log-driver json-file --log-opt max-size=1m --endpoint-mode vip --secret source=key,target=k,mode=0400,uid=1 --config conf",
    "--entrypoint /bin/sh bb:1 -c x",
  ].join(" "),
];

const inspected: readonly (readonly [noun: string, name: string])[] = [
  ["service", "plain"],
  ["service", "global"],
  ["service", "job"],
  ["service", "gjob"],
  ["service", "full"],
  ["network", "back"],
  ["network", "inner"],
  ["secret", "key"],
  ["config", "conf"],
];

const templates: Readonly<Record<string, readonly string[]>> = {
  service: [
    "{{.ID}} {{.Spec.Name}} {{json .Spec.Labels}} {{.Version.Index}}",
    "{{.Spec.TaskTemplate.ContainerSpec.Image}} {{json .Spec.Mode}} {{with .Spec.Mode.Replicated}}{{.Replicas}}{{end}}",
    '{{index .Spec.Labels "com.example.a"}}|{{.Spec.Labels.tier}}|{{range $k, $v := .Spec.Labels}}{{$k}}={{$v}},{{end}}',
    "{{range .Spec.TaskTemplate.ContainerSpec.Env}}{{println .}}{{end}}",
    "{{json .}}",
    "{{json .Spec.TaskTemplate}}",
    "{{if .UpdateStatus}}updating{{else}}still{{end}}",
    "{{range .Endpoint.Ports}}{{.PublishedPort}}->{{.TargetPort}}/{{.Protocol}} {{end}}",
    "{{len .Spec.TaskTemplate.Placement.Constraints}} {{.Spec.TaskTemplate.ForceUpdate}}",
    '{{.Spec.Name | upper | printf "%9s"}}',
  ],
  network: [
    "{{.ID}} {{.Name}} {{.Driver}} {{.Scope}} {{.Internal}}",
    "{{json .Labels}} {{range .IPAM.Config}}{{.Subnet}}{{end}}",
  ],
  secret: ["{{.ID}} {{.Spec.Name}} {{json .Spec}}", "{{json .}}"],
  config: ["{{.ID}} {{.Spec.Name}} {{json .Spec}}", "{{json .}}"],
};

const listings: readonly string[] = [
  "service ls --format {{.Name}}|{{.Mode}}|{{.Replicas}}|{{.Image}}|{{.Ports}}",
  "service ls --format {{.ID}}",
  "network ls --filter driver=overlay --format {{.ID}}|{{.Name}}|{{.Driver}}|{{.Scope}}|{{.Internal}}|{{.Labels}}",
  'secret ls --format {{.ID}}|{{.Name}}|{{.Driver}}|{{.Labels}}|{{.Label "a"}}',
  "config ls --format {{.ID}}|{{.Name}}|{{.Labels}}",
];

test("inspect and templates print the same as Docker's client for the same objects", async (t) => {
  t.timeout(patient(300_000));
  const lab = startLab(t, 1);
  const [machine] = lab.machines as readonly [Machine];
  const engine = await startEngine(t, machine);
  await engine.docker("swarm", "init", "--advertise-addr", machine.address);
  const { NodeID } = await engine.swarm();
  await engine.docker("node", "update", "--label-add", "zone=a", NodeID);
  await engine.docker("secret", "create", "--label", "a=b", "key", "/etc/hostname");
  await engine.docker("config", "create", "--label", "a=b", "conf", "/etc/hostname");
  for (const line of made) await engine.docker(...words(line));
  const host = `unix://${await plainControlSocket(t, engine)}`;
  const muster = async (...args: readonly string[]): Promise<string> =>
    (await runMuster(["--host", host, ...args], { timeoutMs: 120_000 })).stdout.trim();

  const ids: (readonly [string, string])[] = [...inspected, ["node", NodeID]];
  for (const [noun, name] of ids) {
    const [ours, docker] = await Promise.all([muster(noun, "inspect", name), engine.docker(noun, "inspect", name)]);
    t.deepEqual(JSON.parse(ours), JSON.parse(docker), `${noun} inspect ${name}`);
    for (const template of templates[noun] ?? []) {
      const args = [noun, "inspect", "--format", template, name];
      const outcomes = await Promise.allSettled([muster(...args), engine.docker(...args)]);
      const [mine, theirs] = outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome.value : "failed"));
      t.is(mine, theirs, args.join(" "));
    }
  }
  for (const line of listings) {
    const args = line.split(" --format ");
    const [before = "", format = ""] = args;
    const call = [...words(before), "--format", format];
    const [ours, docker] = await Promise.all([muster(...call), engine.docker(...call)]);
    t.deepEqual(ours.split("\n").toSorted(), docker.split("\n").toSorted(), line);
  }
});
