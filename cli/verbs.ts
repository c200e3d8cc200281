/** What `muster` can be asked, and where the answer is: each file is loaded only when its verb is used. */
import type { Command } from "./command.ts";

/** One command, or a noun with commands of its own. */
export type Verb =
  | { readonly kind: "command"; readonly command: Command }
  | { readonly kind: "noun"; readonly commands: Readonly<Record<string, Command>> };

export interface VerbEntry {
  readonly summary: string;
  load(): Promise<Verb>;
}

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
    "runs a cluster here with a sample service",
    async () => (await import("./processes/up-and-start.ts")).start,
  ),
  up: verb(
    "runs a cluster here: NATS, one manager, one agent",
    async () => (await import("./processes/up-and-start.ts")).up,
  ),
  manager: verb("runs one manager", async () => (await import("./processes/manager-command.ts")).manager),
  log: noun("checks and repairs the log of a manager that does not start", () => import("./processes/log-command.ts")),
  agent: verb("runs one node", async () => (await import("./processes/agent-command.ts")).agent),
  node: noun("the machines that run tasks", () => import("./node.ts")),
  service: noun("what is to run", async () => {
    const [{ commands }, { rollout }, { logs }] = await Promise.all([
      import("./service.ts"),
      import("./service/service-rollout.ts"),
      import("./service/service-logs.ts"),
    ]);
    return { commands: { ...commands, rollout, logs } };
  }),
  network: noun("what tasks reach each other by", () => import("./network.ts")),
  secret: noun("content for tasks that nobody else may read", () => import("./secret.ts")),
  volume: noun("storage that plugins have and tasks mount", () => import("./volume.ts")),
  config: noun("content for tasks", () => import("./config.ts")),
  context: noun("names for the managers that you work with", () => import("./context.ts")),
  login: verb("logs in to the manager of a context", async () => (await import("./login.ts")).login),
  logout: verb("removes the certificate of a context", async () => (await import("./login.ts")).logout),
  user: noun("who may log in from other machines and to the JSON API", () => import("./user.ts")),
  extension: noun("kinds of objects that the cluster keeps for others", () => import("./extension.ts")),
  resource: noun("objects that the cluster keeps for others", () => import("./resource.ts")),
  policy: noun("who may talk to whom", () => import("./policy.ts")),
  stack: noun("services, networks and the rest from Compose files", () => import("./stack.ts")),
  job: noun("work that is run to its end, once or on a schedule", () => import("./job.ts")),
  task: noun("attempts to run it", () => import("./task.ts")),
  swarm: noun("the cluster as a whole: its settings and the key that unlocks it", () => import("./swarm.ts")),
  token: verb("prints the token with which a node joins", async () => (await import("./token.ts")).token),
  cluster: noun("the cluster object, by swarmctl's verbs", () => import("./cluster.ts")),
  ca: verb("prints the cluster's root certificate", async () => (await import("./ca.ts")).ca),
  events: verb("prints what happens, as it happens", async () => (await import("./events.ts")).events),
  watch: verb(
    "prints what happens to objects of a kind, from any version on",
    async () => (await import("./watch.ts")).watch,
  ),
  history: verb(
    "tells what changed in an object, who asked and what followed",
    async () => (await import("./history.ts")).history,
  ),
  why: verb("explains what something is waiting for", async () => (await import("./why.ts")).why),
  info: verb("sums up the cluster and the manager that answers", async () => (await import("./info.ts")).info),
  completion: verb(
    "prints a script with which a shell completes what is typed",
    async () => (await import("./completion.ts")).completion,
  ),
  charts: verb("shows the statecharts of the system", async () => (await import("./charts.ts")).charts),
};
