/** Words that whoever knows Docker tries and that are no commands here, each with what to do instead. */

const ofOneEngine = "containers, images and volumes of one machine are its engine's business: 'docker %s' on that node";

/** Commands of Docker about what one engine has. */
const ofEngines: readonly string[] = [
  "attach",
  "build",
  "builder",
  "buildx",
  "checkpoint",
  "commit",
  "compose",
  "container",
  "cp",
  "diff",
  "export",
  "image",
  "images",
  "import",
  "kill",
  "load",
  "manifest",
  "pause",
  "plugin",
  "port",
  "pull",
  "push",
  "rename",
  "restart",
  "rmi",
  "save",
  "search",
  "system",
  "tag",
  "trust",
  "unpause",
  "wait",
];

const instead: Readonly<Record<string, string>> = {
  create: "'muster service create' makes what is to run",
  exec: "'muster task exec TASK COMMAND' runs a command in a task",
  inspect: "'muster NOUN inspect NAME' shows one object: node, service, task, network, secret, config, volume",
  logs: "'muster service logs SERVICE' and 'muster task logs TASK' show what was written",
  ps: "'muster task ls' lists tasks, 'muster service ps SERVICE' those of a service",
  rm: "'muster service rm SERVICE' ends a service; one task alone is replaced",
  run: "'muster service create' makes a service, 'muster job run' runs something to its end",
  stats: "'muster task stats TASK' shows what a task uses",
  stop: "'muster service scale SERVICE=0' stops its tasks, 'muster job stop JOB' a job",
  top: "'muster task exec TASK ps' shows the processes of a task",
  update: "'muster service update SERVICE' changes what tasks run with",
  "network connect":
    "a task has its networks for its whole life: 'muster service update --network-add NETWORK SERVICE' replaces the tasks of a service",
  "network disconnect":
    "a task has its networks for its whole life: 'muster service update --network-rm NETWORK SERVICE' replaces the tasks of a service",
  "swarm init":
    "a cluster is founded by its first manager: 'muster up' with all that it needs, or 'muster manager --data-dir DIR'",
  "swarm join":
    "'muster agent --join ADDR:PORT --token TOKEN' joins this machine as a node, 'muster manager --join ADDR:PORT --token TOKEN --nats URL' as a manager, and 'docker swarm join' a Docker Engine",
  "swarm leave":
    "a node leaves when its agent ends ('docker swarm leave' at a Docker Engine), and 'muster node rm NODE' forgets it; 'muster node demote NODE' ends a manager",
  "volume prune":
    "volumes of the cluster are never removed unasked, as in Docker: 'muster volume ls' shows those that no node has, 'muster volume rm' removes them",
  "secret update":
    "a secret never changes: make another and 'muster service update --secret-rm OLD --secret-add NEW SERVICE'",
  "config update":
    "a config never changes: make another and 'muster service update --config-rm OLD --config-add NEW SERVICE'",
  "service start": "'muster service scale SERVICE=1' starts what was scaled to 0",
  "service stop": "'muster service scale SERVICE=0' stops its tasks",
  "service restart": "'muster service update --force SERVICE' replaces its tasks",
  "service exec": "'muster task exec TASK COMMAND' runs a command in a task",
  "service stats": "'muster task stats TASK' shows what a task uses",
  "stack logs": "'muster service logs STACK_SERVICE' shows what a service of the stack wrote",
  "stack stop": "'muster stack rm STACK' ends it; 'muster service scale STACK_SERVICE=0' stops one service",
};

/** What to do instead of a command that Docker has, or seems to have; null for a word that says nothing to us. */
export function insteadOf(words: string): string | null {
  if (Object.hasOwn(instead, words)) return instead[words] ?? null;
  return ofEngines.includes(words) ? ofOneEngine.replace("%s", words) : null;
}
