/** `muster import`: takes over the networks, configs, secrets and services of a running Swarm. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { configBody, secretBody } from "../edges/docker/bodies/content.ts";
import { networkBody } from "../edges/docker/bodies/network.ts";
import { serviceBody } from "../edges/docker/bodies/service.ts";
import { Failure } from "../edges/docker/failure.ts";
import { check, type Shape } from "../edges/docker/shape.ts";
import { UsageError, UserError } from "../lib/user-error.ts";
import {
  ControlService,
  CreateConfigRequest,
  CreateNetworkRequest,
  CreateSecretRequest,
  CreateServiceRequest,
  ListConfigsRequest,
  ListSecretsRequest,
  SecretSpec,
} from "../proto/gen/messages.ts";
import { durationMs } from "../proto/time.ts";
import { command, type Command } from "./command.ts";
import { contentName } from "./content.ts";
import { moveOne } from "./import/moving.ts";
import { networkSpec, planOf, serviceSpec, type Kind, type Step } from "./import/plan.ts";
import { valuesInContainers, type SecretValue } from "./import/secret-values.ts";
import { readSwarm, type Swarm } from "./import/swarm.ts";
import {
  listNetworks,
  listServices,
  networkName,
  serviceName,
  withManager,
  type ManagerClient,
} from "./manager-client.ts";
import type { Shell } from "./shell.ts";
import { formatTable } from "./table.ts";
import { parsePositiveDuration } from "./values.ts";

const { methods } = ControlService;
type Ids = Readonly<Record<Kind, Map<string, string>>>;

/** As long as a large image may take to be pulled on a slow link. */
const timeoutDefault = "10m";

export const importSwarm: Command = command({
  max: 0,
  summary:
    "Take over the networks, configs, secrets and services of a running Swarm, by name. Nothing is created if anything is blocked; objects that the cluster already has are left alone.",
  options: {
    from: {
      type: "string",
      value: "HOST",
      help: "A manager of the Swarm, such as unix:///var/run/docker.sock (required)",
    },
    secrets: {
      type: "string",
      value: "DIR",
      help: "Folder with the values of secrets, each in a file of the secret's name",
      completes: "file",
    },
    "secrets-from-containers": {
      type: "boolean",
      help: "Read the values of other secrets in running tasks of this engine that mount them, with cat",
    },
    "dry-run": { type: "boolean", help: "Only show the plan" },
    partial: { type: "boolean", help: "Create what is not blocked; with --move, leave the rest behind" },
    move: {
      type: "string",
      value: "ENGINE",
      help: "Move this engine of the Swarm here, and nothing else: demote and drain it, let it leave and join, and wait until its tasks run. After a failure or Ctrl-C it goes back. Such as unix:///run/engine.sock",
    },
    "move-back": {
      type: "string",
      value: "ENGINE",
      help: "Move this engine from here to the Swarm, as a worker",
    },
    timeout: {
      type: "string",
      value: "DURATION",
      help: "How long each step of a move may take (default: 10m)",
    },
  },
  examples: [
    { line: "muster import --from unix:///var/run/docker.sock --dry-run", does: "Show what would be taken over" },
    {
      line: "muster import --from unix:///var/run/docker.sock --secrets ./values",
      does: "Take over everything, with the values of secrets from files",
    },
    {
      line: "muster import --from unix:///var/run/docker.sock --secrets-from-containers",
      does: "Take over everything, with the values of secrets from the containers that mount them",
    },
    {
      line: "muster import --from unix:///run/stays.sock --move unix:///var/run/docker.sock",
      does: "Move this machine's engine; --from is another manager of the Swarm",
    },
  ],
  async run({ values, shell }) {
    const { "dry-run": isDry = false, from, partial = false, secrets: folder } = values;
    const isFromContainers = values["secrets-from-containers"] ?? false;
    if (from === undefined) throw new UserError("--from is required: name a manager of the Swarm");
    const moved = values.move ?? values["move-back"];
    if (moved === undefined) {
      if (values.timeout !== undefined) throw new UsageError("--timeout needs --move or --move-back");
    } else {
      if (values.move !== undefined && values["move-back"] !== undefined)
        throw new UsageError("--move and --move-back exclude each other");
      if (isDry || folder !== undefined || isFromContainers)
        throw new UsageError("an engine moves after the import: omit --dry-run and the flags of secrets");
      const timeoutMs = durationMs(parsePositiveDuration(values.timeout ?? timeoutDefault, "timeout"), 0);
      const isBack = values.move === undefined;
      return moveOne({ from, engine: moved, isBack, timeoutMs, isPartial: partial }, shell);
    }
    const swarm = await readSwarm(from);
    await withManager(shell, async (client) => {
      const ids = await idsOf(client);
      const present = {
        network: new Set(ids.network.keys()),
        config: new Set(ids.config.keys()),
        secret: new Set(ids.secret.keys()),
        service: new Set(ids.service.keys()),
      };
      const inFiles = filesIn(folder);
      const others = swarm.secrets.filter(({ name }) => !inFiles.has(name) && !present.secret.has(name));
      const inContainers = isFromContainers ? await valuesInContainers(from, others) : new Map<string, SecretValue>();
      const sources = new Map(
        [...inContainers].map(([name, value]) => [name, `its value is from container ${value.from.slice(0, 12)}`]),
      );
      for (const name of inFiles) sources.set(name, "");
      const steps = planOf(swarm, present, sources);
      print(shell, steps);
      if (isDry) return;
      const isBlocked = steps.some(({ does }) => does === "block");
      if (isBlocked && !partial)
        throw new UserError("nothing was created: resolve what is blocked, or use --partial to leave it out");
      const valueOf = (name: string): Uint8Array =>
        inContainers.get(name)?.data ?? readFileSync(join(folder ?? "", name));
      for (const step of steps) if (step.does === "create") await create(client, step, ids, swarm, valueOf);
      const made = steps.filter(({ does }) => does === "create").length;
      shell.print(`${made} created, ${steps.length - made} left alone or blocked`);
    });
  },
});

const words = { create: "create", keep: "keep", block: "BLOCKED" } as const;

function print(shell: Shell, steps: readonly Step[]): void {
  const rows = steps.map(({ does, from, kind, remark }) => [kind, from.name, words[does], remark]);
  shell.print(formatTable(["KIND", "NAME", "ACTION", "REMARK"], rows));
}

/** By kind and name. */
async function idsOf(client: ManagerClient): Promise<Ids> {
  const [networks, { configs }, { secrets }, services] = await Promise.all([
    listNetworks(client),
    client.call(methods.ListConfigs, ListConfigsRequest.create({})),
    client.call(methods.ListSecrets, ListSecretsRequest.create({})),
    listServices(client),
  ]);
  return {
    network: new Map(networks.map((each) => [networkName(each), each.id])),
    config: new Map(configs.map((each) => [contentName(each), each.id])),
    secret: new Map(secrets.map((each) => [contentName(each), each.id])),
    service: new Map(services.map((each) => [serviceName(each), each.id])),
  };
}

/** Throws UserError. */
function filesIn(folder: string | undefined): ReadonlySet<string> {
  if (folder === undefined) return new Set();
  try {
    return new Set(readdirSync(folder));
  } catch (error) {
    throw new UserError(`cannot read --secrets ${folder}: ${(error as Error).message}`, { cause: error });
  }
}

/** Throws UserError. */
function read<Message>(shape: Shape<Message>, spec: unknown, { from, kind }: Step): Message {
  try {
    return shape.read(check(shape, spec));
  } catch (error) {
    if (error instanceof Failure)
      throw new UserError(`cannot take over ${kind} ${from.name}: ${error.message}`, { cause: error });
    throw error;
  }
}

async function create(
  client: ManagerClient,
  step: Step,
  ids: Ids,
  swarm: Swarm,
  valueOf: (secret: string) => Uint8Array,
): Promise<void> {
  const { from, kind } = step;
  switch (kind) {
    case "network": {
      const spec = read(networkBody, networkSpec(from), step);
      const { network } = await client.call(methods.CreateNetwork, CreateNetworkRequest.create({ spec }));
      ids.network.set(from.name, network?.id ?? "");
      return;
    }
    case "config": {
      const spec = read(configBody, from.spec, step);
      const { config } = await client.call(methods.CreateConfig, CreateConfigRequest.create({ spec }));
      ids.config.set(from.name, config?.id ?? "");
      return;
    }
    case "secret": {
      const shown = read(secretBody, from.spec, step);
      const spec = shown.driver === null ? SecretSpec.patch(shown, { data: valueOf(from.name) }) : shown;
      const { secret } = await client.call(methods.CreateSecret, CreateSecretRequest.create({ spec }));
      ids.secret.set(from.name, secret?.id ?? "");
      return;
    }
    case "service": {
      const spec = read(serviceBody, serviceSpec(from, ids, swarm), step);
      await client.call(methods.CreateService, CreateServiceRequest.create({ spec }));
    }
  }
}
