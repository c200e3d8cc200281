/**
 * Commands of Docker's client for a stock manager and for ours, in order: a walk through the objects of a cluster. `{node}` is the
 * id of the node that runs tasks, `{dir}` a folder with the files of `commandFiles`.
 */
export interface DockerCommand {
  readonly words: readonly string[];
  /** Why ours answers otherwise, on purpose. */
  readonly differs?: string;
  /** A service whose update must have ended before. */
  readonly after?: string;
}

const command = (text: string): DockerCommand => ({ words: text.split(" ") });
const withArgs = (text: string, ...rest: readonly string[]): DockerCommand => ({
  words: [...text.split(" "), ...rest],
});

const differing = (differs: string, text: string): DockerCommand => ({ words: text.split(" "), differs });

export const commandFiles: Readonly<Record<string, string>> = {
  text: "hello\n",
  "compose.yaml": `
version: "3.9"
services:
  web:
    image: bb:1
    command: sleep 1000
    environment: { A: b, C: "" }
    labels: { container: label }
    hostname: "{{.Node.Hostname}}"
    stop_grace_period: 2s
    networks: [back]
    configs: [{ source: text, target: /etc/text, mode: 0440 }]
    secrets: [word]
    healthcheck: { test: ["CMD", "true"], interval: 30s, retries: 2 }
    deploy:
      replicas: 2
      labels: { service: label }
      update_config: { parallelism: 1, delay: 1s, order: start-first, failure_action: rollback }
      rollback_config: { parallelism: 0 }
      restart_policy: { condition: on-failure, delay: 2s, max_attempts: 3, window: 10s }
      resources: { limits: { cpus: "0.5", memory: 64M, pids: 20 }, reservations: { memory: 16M } }
      placement: { constraints: ["node.role != strange"], preferences: [{ spread: node.labels.zone }], max_replicas_per_node: 4 }
  every:
    image: bb:1
    command: sleep 1000
    deploy: { mode: global, endpoint_mode: dnsrr }
networks:
  back: { driver: overlay, attachable: true, labels: { net: label }, driver_opts: { a: b } }
configs:
  text: { file: ./text }
secrets:
  word: { file: ./text }
`,
};

const inspected = ["node", "service", "secret", "config", "network"] as const;

export const dockerCommands: readonly DockerCommand[] = [
  // Configs and secrets.
  command("config create --label a=b --label c conf {dir}/text"),
  command("config create conf {dir}/text"),
  command("config ls"),
  command("config ls -q --filter name=co"),
  command("config ls --filter label=a=b --format {{.Name}}"),
  command("config inspect conf"),
  command("config inspect --pretty conf"),
  command("config inspect absent"),
  command("secret create --label a=b word {dir}/text"),
  command("secret ls --format {{.Name}}/{{.Driver}}"),
  command("secret ls --filter name=wo"),
  command("secret inspect word"),
  command("secret inspect --pretty word"),
  command("secret rm absent"),

  // Networks.
  command("network create -d overlay --label a=b --attachable --opt x=y netw"),
  command(
    "network create -d overlay --subnet 10.77.0.0/24 --gateway 10.77.0.7 --ip-range 10.77.0.128/25 --internal other",
  ),
  command("network create -d overlay netw"),
  command("network create -d strange odd"),
  command(
    "network ls --filter driver=overlay --filter name=netw --format {{.Name}}/{{.Driver}}/{{.Scope}}/{{.Internal}}",
  ),
  command("network ls --filter scope=swarm --filter label=a=b --format {{.Name}}"),
  withArgs("network inspect other --format", "{{.Name}} {{.Internal}} {{json .IPAM}} {{.Attachable}}"),
  command("network rm absent"),
  command("network prune --force --filter until=24h --filter label=a=b"),
  command("network prune --force --filter until=2026-01-01T00:00 --filter label!=c"),
  command("network prune --force --filter until=soon"),
  command("network prune --force --filter driver=overlay"),
  command("network prune --force --filter label=none"),
  command("network create -d overlay --label a=b --label c=d unused"),
  command("network prune --force --filter label=c=d"),
  command("network prune --force --filter until=-1h --filter label!=a"),
  command("network ls --filter scope=swarm --format {{.Name}}"),
  command("network create -d overlay other"),
  ...["container", "image", "volume"].map((kind) =>
    differing("each node has its own to prune: ours names them", `${kind} prune --force`),
  ),

  // Nodes.
  command("node ls --filter id={node} --format {{.ID}}/{{.Status}}/{{.Availability}}/{{.EngineVersion}}"),
  command("node update --label-add zone=a --label-add old=x {node}"),
  command("node update --label-rm old {node}"),
  command("node update --availability pause {node}"),
  withArgs("node inspect {node} --format", "{{.Spec.Availability}} {{json .Spec.Labels}} {{.Status.State}}"),
  command("node update --availability active {node}"),
  command("node update --availability asleep {node}"),
  command("node ls --filter node.label=zone=a -q"),
  command("node ls --filter node.label=zone=b -q"),
  command("node ps {node}"),
  command("node inspect absent"),
  command("node ps absent"),

  // Services.
  withArgs(
    "service create --name web --replicas 2 --network netw --config conf --secret word --env A=b --label s=l --container-label c=l --detach --no-resolve-image bb:1",
    "sh",
    "-c",
    "echo out; echo err >&2; sleep 1000",
  ),
  command("service create --name web --detach --no-resolve-image bb:1"),
  command("service create --name a_b! --detach --no-resolve-image bb:1"),
  command("service create --name bad --network absent --detach --no-resolve-image bb:1"),
  differing("a mistake of the client", "service create --name bad --constraint odd --detach --no-resolve-image bb:1"),
  command("service create --name bad --secret absent --detach --no-resolve-image bb:1"),
  command(
    "service create --name job --mode replicated-job --replicas 2 --max-concurrent 1 --detach --no-resolve-image bb:1 true",
  ),
  command("service create --name every --mode global --detach --no-resolve-image bb:1 sleep 1000"),
  command(
    "service create --name full --detach --no-resolve-image --mode replicated --replicas 0 --hostname h --user 1:2 --workdir /w --group 3 --read-only --init --stop-signal SIGINT --stop-grace-period 3s --limit-cpu 0.5 --limit-memory 64m --limit-pids 10 --reserve-cpu 0.1 --reserve-memory 8m --restart-condition on-failure --restart-delay 1s --restart-max-attempts 2 --restart-window 9s --update-parallelism 2 --update-delay 3s --update-failure-action rollback --update-monitor 4s --update-max-failure-ratio 0.2 --update-order start-first --rollback-parallelism 3 --rollback-delay 1s --endpoint-mode vip --publish published=18080,target=80,protocol=tcp,mode=ingress --constraint node.labels.zone==a --placement-pref spread=node.labels.zone --replicas-max-per-node 2 --mount type=tmpfs,target=/t,tmpfs-size=1000000,tmpfs-mode=700 --mount type=bind,source=/tmp,target=/b,readonly,bind-propagation=rslave --mount type=volume,source=v,target=/v,volume-label=a=b,volume-nocopy --health-cmd true --health-interval 5s --health-timeout 2s --health-retries 4 --health-start-period 1s --dns 10.0.0.1 --dns-search a.example --dns-option ndots:2 --host h:10.1.1.1 --sysctl net.core.somaxconn=10 --cap-add NET_ADMIN --cap-drop CHOWN --ulimit nofile=10:20 --log-driver json-file --log-opt max-size=1m --isolation default --tty --generic-resource gpu=1 bb:1 sleep 10",
  ),
  command("service inspect full"),
  command("service inspect --pretty full"),
  command("service inspect web"),
  differing("a job has no rollouts: ours shows no defaults of them", "service inspect job"),
  command("service ls --filter name=full"),
  command("service ls --filter mode=global --format {{.Name}}/{{.Mode}}/{{.Image}}/{{.Ports}}"),
  command("service ls --filter label=s=l -q"),
  command("service ls --filter strange=x"),
  command("service inspect absent"),
  command("service ps absent"),
  command("service scale full=1 --detach"),
  command("service scale full=0 --detach"),
  command("service scale every=2 --detach"),
  command(
    "service update --detach --no-resolve-image --env-add X=y --env-rm A --label-add n=m --label-rm s --container-label-add q=r --publish-rm 80 --publish-add 18081:81 --constraint-rm node.labels.zone==a --mount-rm /t --host-add i:10.1.1.2 --dns-rm 10.0.0.1 --limit-memory 32m --cap-drop NET_RAW --force full",
  ),
  command("service inspect full"),
  command("service rollback --detach full"),
  { ...command("service inspect --pretty full"), after: "full" },
  command("service update --detach --image bb:2 --no-resolve-image absent"),
  command("service update --detach --update-order strange full"),
  command("service update --detach --secret-rm word --config-rm conf --network-rm netw web"),
  differing("a rollback would need it", "secret rm word"),
  command("service update --detach --rollback web"),
  command("network prune --force"),
  command("network rm netw"),
  command("service rm web every job full"),
  command("service rm web"),

  // Stacks.
  command("stack deploy -c {dir}/compose.yaml shop"),
  command("stack ls"),
  command("stack services shop --format {{.Name}}/{{.Mode}}/{{.Image}}"),
  command("service inspect shop_web"),
  command("service inspect shop_every"),
  command("config ls --filter label=com.docker.stack.namespace=shop --format {{.Name}}"),
  command("stack deploy --prune -c {dir}/compose.yaml shop"),
  command("stack ps absent"),
  command("stack rm shop"),
  command("stack rm absent"),

  // The cluster.
  withArgs("swarm update --task-history-limit", "3", "--dispatcher-heartbeat", "6s", "--cert-expiry", "800h"),
  command("swarm update --autolock=false"),
  command("swarm init"),
  command("swarm unlock-key"),
  command("swarm unlock-key -q"),
  command("swarm unlock-key --rotate"),
  command("swarm unlock"),
  command("swarm update --autolock"),
  command("swarm unlock-key"),
  command("swarm unlock-key -q"),
  command("swarm unlock-key --rotate"),
  command("swarm unlock-key --rotate -q"),
  command("swarm update --autolock"),
  command("swarm update --autolock=false"),
  command("swarm unlock-key --rotate -q"),
  withArgs(
    "info --format",
    "{{.Swarm.LocalNodeState}} {{.Swarm.ControlAvailable}} {{.Swarm.Cluster.Spec.Orchestration.TaskHistoryRetentionLimit}} {{json .Swarm.Cluster.Spec.CAConfig}} {{json .Swarm.Cluster.Spec.Dispatcher}}",
  ),
  ...inspected.map((kind) => command(`${kind} inspect absent`)),
  differing("each node has its own to prune: ours names them", "system prune --force"),
];
