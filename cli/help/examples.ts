/** Examples of each command, by its name: what the help shows and the reference page. A test reads every line of them. */
import type { Example } from "../command.ts";

/** Commands with the lines of their examples, each with what it is for. */
const lines: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  start: { "muster start --once": "shows that it works, and ends" },
  up: {
    "muster up": "a cluster on this machine",
    "muster up --listen 192.0.2.1:2377 --advertise 192.0.2.1": "one that other machines can join",
  },
  manager: {
    "muster manager --data-dir /var/lib/muster --listen 0.0.0.0:2377 --advertise 192.0.2.1":
      "one manager with its own NATS",
    "muster manager --data-dir /var/lib/muster --nats nats://192.0.2.9:4222": "one of several on a NATS cluster",
  },
  "log check": { "muster log check --data-dir /var/lib/muster": "what a stopped manager's log is worth" },
  "log repair": {
    "muster log repair --data-dir /var/lib/muster --nats nats://192.0.2.9:4222":
      "keeps what can be read of the log that managers share",
  },
  agent: {
    "muster agent --join 192.0.2.1:2377 --token SWMTKN-1-… --data-dir /var/lib/muster-agent --label zone=eu":
      "joins this machine as a node",
  },
  "node ls": {
    "muster node ls": "all nodes",
    "muster node ls --filter role=manager": "the managers",
    "muster node ls --format '{{.Hostname}}: {{.Status}}'": "a line of one's own for each",
  },
  "node inspect": {
    "muster node inspect self --pretty": "the manager that answers, for people",
    "muster node inspect --format '{{.Status.Addr}}' web-1": "one field",
  },
  "node update": {
    "muster node update --availability drain web-1": "moves its tasks away, for maintenance",
    "muster node update --label-add zone=eu --label-rm old web-1": "changes its labels",
  },
  "node promote": { "muster node promote m2": "a manager again, once its process is started" },
  "node demote": { "muster node demote m2": "it hands over and ends; then it can be removed" },
  "node rm": { "muster node rm --force web-1": "forgets a node that will not come back" },
  "node ps": {
    "muster node ps": "tasks of the manager that answers",
    "muster node ps --filter desired-state=shutdown web-1 web-2": "tasks of the past on two nodes",
  },
  "service create": {
    "muster service create --name web --replicas 3 --publish 8080:80 nginx:1.27": "three containers behind one port",
    "muster service create --name clock --driver exec -- /bin/sh -c 'while date; do sleep 1; done'":
      "a plain process, without an engine",
    "muster service create --name shop --driver exec --health-http :8080/ready -- ./shop --port 8080":
      "one that runs once it answers",
    "muster service create --name db --mount type=volume,source=data,target=/data --constraint node.labels.disk==ssd pg:16":
      "with a volume, where there is a fast disk",
  },
  "service ls": {
    "muster service ls": "all services",
    "muster service ls --filter mode=global --quiet": "ids of the global ones",
    "muster service ls --format 'table {{.Name}}\\t{{.Replicas}}'": "a table of two columns",
  },
  "service ps": {
    "muster service ps web api": "tasks of two services",
    "muster service ps --no-trunc web": "with whole errors",
  },
  "service inspect": {
    "muster service inspect --pretty web": "for people",
    "muster service inspect --format '{{json .Spec.TaskTemplate}}' web": "one part as JSON",
    "muster service inspect --format '{{index .Spec.Labels \"com.example.tier\"}}' web": "a label",
  },
  "service update": {
    "muster service update --image nginx:1.28 --update-order start-first web": "a new image, the new task first",
    "muster service update --env-add LEVEL=debug --publish-rm 80 web": "changes what is named, leaves the rest",
    "muster service update --force web": "replaces the tasks as they are",
  },
  "service rollback": { "muster service rollback web": "back to the spec before" },
  "service scale": { "muster service scale web=5 api=2": "two services at once" },
  "service rm": { "muster service rm web api": "removes two services" },
  "service plan create": {
    "muster service plan create --name web --replicas 3 nginx:1.27": "where three tasks would go",
  },
  "service plan update": {
    "muster service plan update --image nginx:1.28 web": "what would be replaced, in which order",
  },
  "service plan rollback": { "muster service plan rollback web": "what would be undone" },
  "service plan scale": { "muster service plan scale web=50": "whether there is room" },
  "service rebalance": {
    "muster service rebalance --dry-run": "what would be moved",
    "muster service rebalance --on --moves 10 --window 1h": "has at most ten tasks moved an hour",
  },
  "service rollout": {
    "muster service rollout status web": "how far an update has come",
    "muster service rollout pause web": "stops it where it is",
  },
  "service logs": {
    "muster service logs --follow --tail 100 web": "the last lines of each task, and what follows",
    "muster service logs --since 10m --timestamps web.2": "of one task, with times",
  },
  "network create": {
    "muster network create --driver overlay back": "a network that spans the cluster",
    "muster network create --subnet 10.20.0.0/24 --attachable --label tier=back back": "with addresses of one's choice",
  },
  "network ls": { "muster network ls --filter label=tier=back": "those with a label" },
  "network inspect": {
    "muster network inspect --format '{{range .IPAM.Config}}{{.Subnet}}{{end}}' back": "its subnet",
  },
  "network rm": { "muster network rm back": "removes it, when nothing uses it" },
  "network prune": {
    "muster network prune": "removes all that nothing uses, after a question",
    "muster network prune --force --filter until=24h": "those older than a day, at once",
  },
  "secret create": {
    "muster secret create tls_key key.pem": "from a file",
    'printf %s "$PASSWORD" | muster secret create db_password -': "from standard input",
  },
  "secret ls": { "muster secret ls --filter name=tls": "those whose name begins so" },
  "secret inspect": { "muster secret inspect --pretty tls_key": "all but the content" },
  "secret rm": { "muster secret rm tls_key": "removes it, when no service uses it" },
  "config create": {
    "muster config create --label app=web site.conf ./site.conf": "from a file",
    "muster config create --template-driver golang motd motd.tmpl": "expanded for each task",
  },
  "config ls": { "muster config ls --filter label=app=web": "those with a label" },
  "config inspect": { "muster config inspect --pretty site.conf": "with its content" },
  "config rm": { "muster config rm site.conf": "removes it, when no service uses it" },
  "context create": {
    "muster context create prod --host tcp://192.0.2.1:2377 --ca ca.pem --user ada":
      "a manager on another machine, to log in to as ada",
    "muster context create prod --host unix:///var/lib/muster/manager/control.sock":
      "a name for the manager of this socket",
  },
  login: {
    "muster login": "asks for the password of the user of the context in use",
    "muster login prod --password-file ~/.muster-password --lifetime 1h": "for a script",
  },
  logout: { "muster logout prod": "the key is gone from this machine" },
  "context use": { "muster context use prod": "later commands ask it" },
  "context ls": { "muster context ls": "all of them; * marks the one in use" },
  "context show": { "muster context show": "the name of the one in use" },
  "context rm": { "muster context rm --force prod": "removed, although it is in use" },
  "user add": {
    "cat password.txt | muster user add --role operator ada": "who may change services; the password is the first line",
    "muster user add --password-file /run/password watcher": "who may only look",
  },
  "user certificate": {
    "muster user certificate ada -o ada --lifetime 24h": "for a user who is not to have the password here",
  },
  "user ls": { "muster user ls --format '{{.Name}} {{.Role}}'": "names and roles" },
  "user passwd": { "cat password.txt | muster user passwd ada": "another password" },
  "user grant": { "muster user grant ada admin": "another role, at once" },
  "user disable": { "muster user disable ada": "ends the connections and refuses logins; the user stays" },
  "user enable": { "muster user enable ada": "logins are taken again" },
  "user rm": { "muster user rm ada": "ends ada's connections too" },
  "stack deploy": {
    "muster stack deploy --compose-file compose.yaml shop": "makes or updates it, and waits until it runs",
    "muster stack deploy -c compose.yaml -c production.yaml --prune --detach shop":
      "merges two files, and removes services that they do not have",
  },
  "stack ls": { "muster stack ls": "all stacks" },
  "stack ps": { "muster stack ps --filter desired-state=running shop": "its tasks that are to run" },
  "stack services": { "muster stack services --quiet shop": "ids of its services" },
  "stack config": { "muster stack config -c compose.yaml --format json": "what the file comes to" },
  "stack rm": { "muster stack rm shop": "removes all of it" },
  "job run": {
    "muster job run --name migrate --wait myapp:2 ./migrate": "runs it once, and waits",
    "muster job run --name report --schedule '0 6 * * 1' --time-zone Europe/Berlin report:1": "each Monday at six",
  },
  "job ls": { "muster job ls --no-runs": "jobs without the runs of schedules" },
  "job ps": { "muster job ps report": "tasks of its runs" },
  "job history": { "muster job history report": "what became of each due time" },
  "job pause": { "muster job pause report": "starts nothing new" },
  "job resume": { "muster job resume report": "goes on" },
  "job stop": { "muster job stop migrate": "ends what runs" },
  "job rerun": { "muster job rerun migrate": "does all of it again" },
  "job rm": { "muster job rm migrate": "removes it" },
  "task ls": {
    "muster task ls --filter service=web --filter node=web-1": "those of a service on a node",
    "muster task ls --all --format '{{.Name}} {{.CurrentState}}'": "those of the past, too",
  },
  "task logs": {
    "muster task logs --follow --tail 20 web.1": "the last lines of a task, and what it writes from now on",
  },
  "task exec": {
    "muster task exec -it web.1 sh": "a shell in a task",
    "muster task exec web.1 cat /etc/hostname": "one command; ends as that does",
  },
  "task stats": {
    "muster task stats web.1": "what a task uses, every second",
    "muster task stats --no-stream web.1": "the same once",
  },
  "task signal": {
    "muster task signal -s HUP web.1": "has a task read its configuration again",
  },
  "task inspect": {
    "muster task inspect --format '{{.Status.State}} {{.Status.Err}}' web.1": "how the newest task of a slot is",
  },
  "swarm update": { "muster swarm update --autolock": "asks for a key when a manager starts" },
  "swarm ca": {
    "muster swarm ca": "the root certificate",
    "muster swarm ca --rotate": "a new one; nodes renew theirs one after another",
    "muster swarm ca --rotate --ca-cert my.pem --ca-key my.key": "one of your own",
    "muster swarm ca --rotate --ca-cert my.pem --external-ca protocol=cfssl,url=https://ca:8888/api/v1/cfssl/sign":
      "one whose key is with a CFSSL server",
  },
  "cluster ls": { "muster cluster ls": "the cluster, and whether its root is being rotated" },
  "cluster inspect": {
    "muster cluster inspect --pretty default": "for people; says whom a rotation waits for",
    "muster cluster inspect --format '{{.RootRotationInProgress}}' default": "one field",
  },
  "cluster update": {
    "muster cluster update --certexpiry 720h --heartbeatperiod 10s default": "by swarmctl's flags",
    "muster cluster update --rotate-join-token worker default": "a new token for workers",
  },
  "swarm join-token": { "muster swarm join-token --rotate worker": "a new token; the old one is void" },
  "swarm unlock": { "muster swarm unlock": "asks for the key and unlocks a manager that was started" },
  "swarm unlock-key": { "muster swarm unlock-key --quiet": "the key alone" },
  "volume create": {
    "muster volume create --driver csi.example --type mount --sharing none --scope single data":
      "a volume of a CSI plugin",
  },
  "volume ls": { "muster volume ls": "all volumes of the cluster" },
  "volume inspect": { "muster volume inspect data": "everything about it" },
  "volume update": { "muster volume update --availability drain data": "takes it away from tasks" },
  "volume rm": { "muster volume rm data": "removes it, when no task uses it" },
  token: {
    "muster token worker": "what an engine joins with",
    "muster token manager --rotate": "a new one for managers",
  },
  ca: {
    "muster ca > root.pem": "keeps it in a file",
    "muster ca --digest": "for 'muster context create --ca-digest' on another machine",
  },
  events: {
    "muster events --filter type=task --filter type=node": "changes of tasks and nodes",
    "muster events --format '{{.Type}} {{.Action}} {{.Actor.Attributes.name}}'": "a line of one's own for each",
  },
  watch: {
    "muster watch task --filter service=web --action create,remove": "tasks of a service that come and go",
    "muster watch service --from 10m --format json": "what was changed in the last ten minutes, and from now on",
  },
  history: { "muster history service web": "who changed it, and what followed" },
  why: { "muster why web.2": "what a task waits for", "muster why web-1": "why a node is not ready" },
  info: { "muster info": "the cluster at a glance", "muster info --format '{{.Swarm.Cluster.ID}}'": "one field" },
  completion: {
    "source <(muster completion bash)": "in ~/.bashrc",
    "muster completion fish | source": "in config.fish",
  },
  charts: { "muster charts --format mermaid task-life": "the life of a task, as a diagram" },
};

/** None for a command that has none here. */
export function examplesOf(name: string): readonly Example[] {
  const found = Object.hasOwn(lines, name) ? (lines[name] ?? {}) : {};
  return Object.entries(found).map(([line, does]) => ({ line, does }));
}
