/** The verbs of `muster`; each file is loaded only when its verb is used. */
import type { Command } from "./command.ts";
import type { VerbEntry } from "./help/tree.ts";

function noun(
  summary: string,
  load: () => Promise<{ readonly commands: Readonly<Record<string, Command>> }>,
): VerbEntry {
  return { summary, load: async () => ({ kind: "noun", commands: (await load()).commands }) };
}

function verb(summary: string, load: () => Promise<Command>): VerbEntry {
  return { summary, load: async () => ({ kind: "command", command: await load() }) };
}

export const verbs: Readonly<Record<string, VerbEntry>> = {
  start: verb(
    "Run a cluster on this machine with a sample service",
    async () => (await import("./serve/up-and-start.ts")).start,
  ),
  up: verb(
    "Run a cluster on this machine: NATS, a manager and an agent",
    async () => (await import("./serve/up-and-start.ts")).up,
  ),
  manager: verb("Run a manager", async () => (await import("./serve/manager.ts")).manager),
  log: noun("Check and repair the log of a manager that does not start", () => import("./serve/log.ts")),
  backup: verb("Back up the cluster", async () => (await import("./backup.ts")).backup),
  restore: verb("Found a cluster again from a backup", async () => (await import("./serve/restore.ts")).restore),
  agent: verb("Run a node", async () => (await import("./serve/agent.ts")).agent),
  node: noun("Manage nodes", () => import("./node.ts")),
  service: noun("Manage services", async () => {
    const [{ commands }, { rollout }, { logs }] = await Promise.all([
      import("./service.ts"),
      import("./service/rollout.ts"),
      import("./service/logs.ts"),
    ]);
    return { commands: { ...commands, rollout, logs } };
  }),
  network: noun("Manage networks", () => import("./network.ts")),
  secret: noun("Manage secrets", () => import("./secret.ts")),
  volume: noun("Manage cluster volumes", () => import("./volume.ts")),
  config: noun("Manage configs; check the configuration of processes", async () => {
    const [{ commands }, { checkOf }] = await Promise.all([import("./config.ts"), import("./settings/check.ts")]);
    return { commands: { ...commands, check: checkOf(verbs) } };
  }),
  context: noun("Manage contexts: names for the managers that you work with", () => import("./context.ts")),
  login: verb("Log in to the manager of a context", async () => (await import("./login.ts")).login),
  logout: verb("Log out: remove the certificate of a context", async () => (await import("./login.ts")).logout),
  user: noun("Manage users of remote managers and of the JSON API", () => import("./user.ts")),
  extension: noun("Manage kinds of custom objects", () => import("./extension.ts")),
  resource: noun("Manage custom objects", () => import("./resource.ts")),
  policy: noun("Manage network policies", () => import("./policy.ts")),
  stack: noun("Manage stacks from Compose files", () => import("./stack.ts")),
  import: verb("Take over a running Swarm", async () => (await import("./import.ts")).importSwarm),
  job: noun("Manage jobs: tasks that run to completion, once or on a schedule", () => import("./job.ts")),
  task: noun("Manage tasks", () => import("./task.ts")),
  swarm: noun("Manage the cluster: settings, root certificate, unlock key", () => import("./swarm.ts")),
  token: verb("Display the token with which nodes join", async () => (await import("./token.ts")).token),
  cluster: noun("Manage the cluster object with swarmctl's verbs", () => import("./cluster.ts")),
  ca: verb("Display the cluster's root certificate", async () => (await import("./ca.ts")).ca),
  events: verb("Stream events from the cluster", async () => (await import("./events.ts")).events),
  watch: verb("Stream changes of one kind of object, from any version", async () => (await import("./watch.ts")).watch),
  ui: verb("Open the web interface in a browser", async () => (await import("./ui.ts")).ui),
  record: verb("Record the last minutes of the cluster", async () => (await import("./record.ts")).record),
  replay: verb("Open a recording in the web interface", async () => (await import("./replay.ts")).replay),
  simulate: verb("Rehearse an operation on a copy of a cluster", async () => (await import("./simulate.ts")).simulate),
  history: verb(
    "Show what changed in an object, who changed it and what followed",
    async () => (await import("./history.ts")).history,
  ),
  inspect: verb(
    "Show live actors, each as the statechart that runs it",
    async () => (await import("./inspect.ts")).inspect,
  ),
  why: verb("Explain what an object is waiting for", async () => (await import("./why.ts")).why),
  doctor: verb("Examine this machine and the cluster", async () => (await import("./doctor.ts")).doctor),
  info: verb("Display a summary of the cluster", async () => (await import("./info.ts")).info),
  completion: verb("Generate a shell completion script", async () =>
    (await import("./completion.ts")).completionOf(verbs),
  ),
  charts: verb("Show the statecharts of the system", async () => (await import("./charts.ts")).charts),
  version: verb(
    "Display the versions of this command, its components and protocols",
    async () => (await import("./version.ts")).versions,
  ),
};
