/** Docker commands that do not exist here, with what to use instead. */

const ofOneEngine = "containers, images and volumes belong to one node's engine: run 'docker %s' on that node";

/** Docker commands about objects of one engine. */
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
  create: "use 'muster service create' to run something",
  exec: "use 'muster task exec TASK COMMAND'",
  logs: "use 'muster service logs SERVICE' or 'muster task logs TASK'",
  ps: "use 'muster task ls', or 'muster service ps SERVICE' for one service",
  rm: "use 'muster service rm SERVICE'; a single task that is removed would be replaced",
  run: "use 'muster service create', or 'muster job run' for something that runs to completion",
  stats: "use 'muster task stats TASK'",
  stop: "use 'muster service scale SERVICE=0' or 'muster job stop JOB'",
  top: "use 'muster task exec TASK ps'",
  update: "use 'muster service update SERVICE'",
  "network connect":
    "a task's networks are fixed: 'muster service update --network-add NETWORK SERVICE' replaces the tasks of a service",
  "network disconnect":
    "a task's networks are fixed: 'muster service update --network-rm NETWORK SERVICE' replaces the tasks of a service",
  "swarm init":
    "the first manager creates the cluster: run 'muster up' for a whole cluster, or 'muster manager --data-dir DIR'",
  "swarm join":
    "use 'muster agent --join ADDR:PORT --token-file FILE' to join this machine as a node, 'muster manager --join ADDR:PORT --token-file FILE --nats URL' as a manager, or 'docker swarm join' for a Docker Engine",
  "swarm leave":
    "stop the node's agent (on a Docker Engine, 'docker swarm leave'), then run 'muster node rm NODE'; to stop a manager, run 'muster node demote NODE'",
  "volume prune":
    "as in Docker, cluster volumes are not pruned: find unused ones with 'muster volume ls' and remove them with 'muster volume rm'",
  "secret update":
    "secrets are immutable: create another one, then 'muster service update --secret-rm OLD --secret-add NEW SERVICE'",
  "config update":
    "configs are immutable: create another one, then 'muster service update --config-rm OLD --config-add NEW SERVICE'",
  "service start": "use 'muster service scale SERVICE=1'",
  "service stop": "use 'muster service scale SERVICE=0'",
  "service restart": "use 'muster service update --force SERVICE'",
  "service exec": "use 'muster task exec TASK COMMAND'",
  "service stats": "use 'muster task stats TASK'",
  "stack logs": "use 'muster service logs STACK_SERVICE'",
  "stack stop": "use 'muster stack rm STACK', or 'muster service scale STACK_SERVICE=0' for one service",
};

/** What to use instead of a Docker command, real or supposed; null for an unknown word. */
export function insteadOf(words: string): string | null {
  if (Object.hasOwn(instead, words)) return instead[words] ?? null;
  return ofEngines.includes(words) ? ofOneEngine.replace("%s", words) : null;
}
