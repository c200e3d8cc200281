/** Examples by command name, for the help and the reference page. A test parses every line. */
import type { Example } from "./description.ts";

/** Commands with their examples: command line, then purpose. */
const lines: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  start: { "muster start --once": "check that everything works, then exit" },
  up: {
    "muster up": "run a cluster on this machine",
    "muster up --listen 192.0.2.1:2377 --advertise 192.0.2.1": "let other machines join",
  },
  manager: {
    "muster manager --data-dir /var/lib/muster --listen 0.0.0.0:2377 --advertise 192.0.2.1":
      "one manager with its own NATS",
    "muster manager --data-dir /var/lib/muster --listen 0.0.0.0:2377 --join 192.0.2.1:2377 --token-file /etc/muster/token":
      "another manager of its cluster",
    "muster manager --data-dir /var/lib/muster --nats nats://192.0.2.9:4222":
      "one of several managers on a shared NATS cluster",
    "muster manager --config /etc/muster/manager.yaml": "with settings from a file",
  },
  "log check": { "muster log check --data-dir /var/lib/muster": "check a stopped manager's log" },
  "log repair": {
    "muster log repair --data-dir /var/lib/muster --nats nats://192.0.2.9:4222":
      "keep the readable part of a shared log",
  },
  doctor: {
    "muster doctor --data-dir /var/lib/muster": "examine this machine, and the cluster if a manager runs here",
    "muster doctor --cluster --format json": "examine the cluster only, for a program",
  },
  backup: {
    "muster backup -o cluster.backup --passphrase-file /etc/muster/backup-passphrase":
      "back up the cluster while it runs",
    "muster backup --verify cluster.backup --passphrase-file /etc/muster/backup-passphrase":
      "check that a backup is whole, and show what is in it",
  },
  restore: {
    "muster restore cluster.backup --data-dir /var/lib/muster --passphrase-file /etc/muster/backup-passphrase":
      "found the cluster again on this machine",
  },
  agent: {
    "muster agent --join 192.0.2.1:2377 --token SWMTKN-1-… --data-dir /var/lib/muster-agent --label zone=eu":
      "join this machine as a node",
  },
  "node ls": {
    "muster node ls": "all nodes",
    "muster node ls --filter role=manager": "managers only",
    "muster node ls --format '{{.Hostname}}: {{.Status}}'": "custom format",
  },
  "node inspect": {
    "muster node inspect self --pretty": "the manager that answers, in a readable format",
    "muster node inspect --format '{{.Status.Addr}}' web-1": "one field",
  },
  "node update": {
    "muster node update --availability drain web-1": "move tasks away for maintenance",
    "muster node update --label-add zone=eu --label-rm old web-1": "change labels",
  },
  "node promote": { "muster node promote m2": "make the node a manager again, once its process is started" },
  "node demote": { "muster node demote m2": "the manager hands over and exits; then the node can be removed" },
  "node rm": { "muster node rm --force web-1": "remove a node that will not come back" },
  "node ps": {
    "muster node ps": "tasks of the manager that answers",
    "muster node ps --filter desired-state=shutdown web-1 web-2": "past tasks on two nodes",
  },
  "service create": {
    "muster service create --name web --replicas 3 --publish 8080:80 nginx:1.27": "three containers behind one port",
    "muster service create --name clock --driver exec -- /bin/sh -c 'while date; do sleep 1; done'":
      "a plain process, without an engine",
    "muster service create --name shop --driver exec --health-http :8080/ready -- ./shop --port 8080":
      "a process that counts as running once it answers",
    "muster service create --name db --mount type=volume,source=data,target=/data --constraint node.labels.disk==ssd pg:16":
      "with a volume, on nodes with a fast disk",
  },
  "service ls": {
    "muster service ls": "all services",
    "muster service ls --filter mode=global --quiet": "IDs of global services",
    "muster service ls --format 'table {{.Name}}\\t{{.Replicas}}'": "a table of two columns",
  },
  "service ps": {
    "muster service ps web api": "tasks of two services",
    "muster service ps --no-trunc web": "without truncating errors",
  },
  "service inspect": {
    "muster service inspect --pretty web": "in a readable format",
    "muster service inspect --format '{{json .Spec.TaskTemplate}}' web": "one part as JSON",
    "muster service inspect --format '{{index .Spec.Labels \"com.example.tier\"}}' web": "one label",
  },
  "service update": {
    "muster service update --image nginx:1.28 --update-order start-first web":
      "a new image, starting the new task first",
    "muster service update --env-add LEVEL=debug --publish-rm 80 web": "change some settings and keep the rest",
    "muster service update --force web": "replace all tasks without a change",
  },
  "service rollback": { "muster service rollback web": "back to the previous spec" },
  "service scale": { "muster service scale web=5 api=2": "two services at once" },
  "service rm": { "muster service rm web api": "remove two services" },
  "service plan create": {
    "muster service plan create --name web --replicas 3 nginx:1.27": "where three tasks would run",
  },
  "service plan update": {
    "muster service plan update --image nginx:1.28 web": "tasks that it would replace, in order",
  },
  "service plan rollback": { "muster service plan rollback web": "changes that it would undo" },
  "service plan scale": { "muster service plan scale web=50": "whether there is enough capacity" },
  "service rebalance": {
    "muster service rebalance --dry-run": "tasks that it would move",
    "muster service rebalance --on --moves 10 --window 1h": "move at most ten tasks per hour",
  },
  "service rollout": {
    "muster service rollout status web": "progress of an update",
    "muster service rollout pause web": "pause it where it is",
  },
  "service logs": {
    "muster service logs --follow --tail 100 web": "the last lines of each task, then follow",
    "muster service logs --since 10m --timestamps web.2": "one task, with timestamps",
  },
  "network create": {
    "muster network create --driver overlay back": "a network that spans the cluster",
    "muster network create --subnet 10.20.0.0/24 --attachable --label tier=back back": "with chosen addresses",
  },
  "network ls": { "muster network ls --filter label=tier=back": "networks with a label" },
  "network inspect": {
    "muster network inspect --format '{{range .IPAM.Config}}{{.Subnet}}{{end}}' back": "its subnet",
  },
  "network rm": { "muster network rm back": "remove a network that nothing uses" },
  "network prune": {
    "muster network prune": "remove all unused networks, after a prompt",
    "muster network prune --force --filter until=24h": "unused networks older than a day, without a prompt",
  },
  "secret create": {
    "muster secret create tls_key key.pem": "from a file",
    'printf %s "$PASSWORD" | muster secret create db_password -': "from standard input",
  },
  "secret ls": { "muster secret ls --filter name=tls": "filter by the beginning of the name" },
  "secret inspect": { "muster secret inspect --pretty tls_key": "everything except the content" },
  "secret rm": { "muster secret rm tls_key": "remove one that no service uses" },
  "config create": {
    "muster config create --label app=web site.conf ./site.conf": "from a file",
    "muster config create --template-driver golang motd motd.tmpl": "expanded as a template for each task",
  },
  "config ls": { "muster config ls --filter label=app=web": "configs with a label" },
  "config inspect": { "muster config inspect --pretty site.conf": "with its content" },
  "config check": {
    "muster config check /etc/muster/manager.yaml": "find mistakes before a restart",
    "muster config check --process agent agent.yaml": "as an agent would read it",
  },
  "config rm": { "muster config rm site.conf": "remove one that no service uses" },
  "context create": {
    "muster context create prod --host tcp://192.0.2.1:2377 --ca ca.pem --user ada":
      "a manager on another machine, to log in to as ada",
    "muster context create prod --host unix:///var/lib/muster/manager/control.sock": "name the manager of this socket",
  },
  login: {
    "muster login": "asks for the password of the user of the context in use",
    "muster login prod --password-file ~/.muster-password --lifetime 1h": "for a script",
  },
  logout: { "muster logout prod": "remove the key from this machine" },
  "context use": { "muster context use prod": "use it for later commands" },
  "context ls": { "muster context ls": "all contexts; * marks the current one" },
  "context show": { "muster context show": "name of the current context" },
  "context rm": { "muster context rm --force prod": "remove it although it is the current one" },
  "user add": {
    "cat password.txt | muster user add --role operator ada": "an operator; the password is the first line of the file",
    "muster user add --password-file /run/password watcher": "a read-only user",
  },
  "user certificate": {
    "muster user certificate ada -o ada --lifetime 24h": "for a user without a password",
  },
  "user ls": { "muster user ls --format '{{.Name}} {{.Role}}'": "names and roles" },
  "user passwd": { "cat password.txt | muster user passwd ada": "change the password" },
  "user grant": { "muster user grant ada admin": "change the role, effective at once" },
  "user disable": { "muster user disable ada": "end connections and refuse logins; the user stays" },
  "user enable": { "muster user enable ada": "accept logins again" },
  "user rm": { "muster user rm ada": "end ada's connections, too" },
  "stack deploy": {
    "muster stack deploy --compose-file compose.yaml shop": "deploy or update it, and wait until it runs",
    "muster stack deploy -c compose.yaml -c production.yaml --prune --detach shop":
      "merge two files, and remove services that are in neither",
  },
  "stack ls": { "muster stack ls": "all stacks" },
  "stack ps": { "muster stack ps --filter desired-state=running shop": "tasks that should be running" },
  "stack services": { "muster stack services --quiet shop": "IDs of its services" },
  "stack config": { "muster stack config -c compose.yaml --format json": "the resulting file" },
  "stack rm": { "muster stack rm shop": "remove the whole stack" },
  "job run": {
    "muster job run --name migrate --wait myapp:2 ./migrate": "run once and wait",
    "muster job run --name report --schedule '0 6 * * 1' --time-zone Europe/Berlin report:1": "every Monday at six",
  },
  "job ls": { "muster job ls --no-runs": "jobs without the runs of schedules" },
  "job ps": { "muster job ps report": "tasks of a schedule's runs" },
  "job history": { "muster job history report": "outcome of each due time" },
  "job pause": { "muster job pause report": "start nothing new" },
  "job resume": { "muster job resume report": "continue" },
  "job stop": { "muster job stop migrate": "stop what is running" },
  "job rerun": { "muster job rerun migrate": "run everything again" },
  "job rm": { "muster job rm migrate": "remove it" },
  "task ls": {
    "muster task ls --filter service=web --filter node=web-1": "tasks of a service on one node",
    "muster task ls --all --format '{{.Name}} {{.CurrentState}}'": "include past tasks, with chosen columns",
  },
  "task logs": {
    "muster task logs --follow --tail 20 web.1": "the last lines of a task, then follow",
  },
  "task exec": {
    "muster task exec -it web.1 sh": "a shell in a task",
    "muster task exec web.1 cat /etc/hostname": "one command, with its exit status",
  },
  "task stats": {
    "muster task stats web.1": "usage of a task, every second",
    "muster task stats --no-stream web.1": "one sample",
  },
  "task signal": {
    "muster task signal -s HUP web.1": "make a task reload its configuration",
  },
  "task inspect": {
    "muster task inspect --format '{{.Status.State}} {{.Status.Err}}' web.1": "state of the newest task of a slot",
  },
  "swarm update": { "muster swarm update --autolock": "require a key when a manager starts" },
  "swarm ca": {
    "muster swarm ca": "the root certificate",
    "muster swarm ca --rotate": "a new root; nodes renew their certificates in batches",
    "muster swarm ca --rotate --ca-cert my.pem --ca-key my.key": "a root of your own",
    "muster swarm ca --rotate --ca-cert my.pem --external-ca protocol=cfssl,url=https://ca:8888/api/v1/cfssl/sign":
      "a root whose key is held by a CFSSL server",
  },
  "cluster ls": { "muster cluster ls": "the cluster, including the state of a root rotation" },
  "cluster inspect": {
    "muster cluster inspect --pretty default": "in a readable format, with the nodes that delay a rotation",
    "muster cluster inspect --format '{{.RootRotationInProgress}}' default": "one field",
  },
  "cluster update": {
    "muster cluster update --certexpiry 720h --heartbeatperiod 10s default": "with swarmctl's flags",
    "muster cluster update --rotate-join-token worker default": "a new token for workers",
  },
  "swarm join-token": { "muster swarm join-token --rotate worker": "a new token; the old one becomes invalid" },
  "swarm unlock": { "muster swarm unlock": "prompt for the key and unlock a restarted manager" },
  "swarm unlock-key": { "muster swarm unlock-key --quiet": "only the key" },
  "volume create": {
    "muster volume create --driver csi.example --type mount --sharing none --scope single data":
      "a volume of a CSI plugin",
  },
  "volume ls": { "muster volume ls": "all volumes of the cluster" },
  "volume inspect": { "muster volume inspect data": "all details" },
  "volume update": { "muster volume update --availability drain data": "move tasks away from it" },
  "volume rm": { "muster volume rm data": "remove one that no task uses" },
  token: {
    "muster token worker": "the token for workers",
    "muster token manager --rotate": "a new token for managers",
  },
  ca: {
    "muster ca > root.pem": "save it to a file",
    "muster ca --digest": "for 'muster context create --ca-digest' on another machine",
  },
  events: {
    "muster events --filter type=task --filter type=node": "changes of tasks and nodes",
    "muster events --format '{{.Type}} {{.Action}} {{.Actor.Attributes.name}}'": "custom format",
  },
  watch: {
    "muster watch task --filter service=web --action create,remove": "tasks of a service as they come and go",
    "muster watch service --from 10m --format json": "changes of the last ten minutes and from now on",
  },
  ui: {
    "muster ui": "open the address that it prints",
    "muster ui --context production --port 8080": "another cluster, on a fixed port",
  },
  record: {
    "muster record": "everything that the processes keep",
    "muster record --since 10m -o incident.mrec": "the last ten minutes",
  },
  replay: {
    "muster replay incident.mrec": "look at a recording, without a cluster",
    "muster replay incident.mrec --verify": "check that today's charts decide the same",
  },
  simulate: {
    "muster simulate --list": "the ready scenarios",
    "muster simulate --scenario rolling-update-rack-loss": "rehearse a ready scenario on the sample cluster",
    "muster simulate --from-cluster --scenario upgrade.yaml --seeds 200 --html report.html":
      "rehearse an operation on a copy of the running cluster, and write a page",
    "muster simulate --from-cluster --save cluster.yaml": "save a copy of the running cluster, without secrets",
    "muster simulate --file cluster.yaml --scenario drain-rack.yaml --check": "find mistakes in the files",
    "muster simulate before.json after.json --html compared.html": "compare two saved reports of the same seeds",
  },
  inspect: {
    "muster inspect --stuck": "actors whose timers are overdue",
    "muster inspect session/worker-1": "the session of a node as its statechart",
    "muster inspect -f rollout/web": "follow the rollout of a service",
    "muster inspect agent-task --process worker-1 --state running": "the tasks that run on a node",
    "muster inspect -f --format json session/worker-1": "each step as a JSON object",
    "muster inspect --stately ws://localhost:8080 rollout": "rollouts in Stately's inspector",
  },
  why: { "muster why web.2": "why a task is waiting", "muster why web-1": "why a node is not ready" },
  info: { "muster info": "the cluster at a glance", "muster info --format '{{.Swarm.Cluster.ID}}'": "one field" },
  completion: {
    "source <(muster completion bash)": "in ~/.bashrc",
    "muster completion fish | source": "in config.fish",
  },
  charts: {
    "muster charts --format mermaid task": "the life cycle of a task as a diagram",
    "muster charts --format scxml session > session.scxml": "a chart for SCXML tools",
  },
  version: {
    "muster version": "this command, its components, protocols and file formats",
    "muster version --json": "the same as JSON, such as for a bug report",
  },
};

/** Empty for a command without examples. */
export function examplesOf(name: string): readonly Example[] {
  const found = Object.hasOwn(lines, name) ? (lines[name] ?? {}) : {};
  return Object.entries(found).map(([line, does]) => ({ line, does }));
}
