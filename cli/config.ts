/** `muster config`: create, ls, inspect, rm. Unlike a secret's, the content can be read again. */
import {
  Annotations,
  Config,
  ConfigSpec,
  ControlService,
  CreateConfigRequest,
  Driver,
  GetConfigRequest,
  ListConfigsRequest,
  RemoveConfigRequest,
} from "../proto/gen/messages.ts";
import { command, listingOptions, UsageError, type Command } from "./command.ts";
import { contentFrom, contentListing, findNamed, matchingNamed } from "./content.ts";
import { withManager, type ManagerClient } from "./manager-client.ts";
import { printListing, printObjects } from "./table.ts";
import { ago, parseLabels } from "./values.ts";

const methods = ControlService.methods;

async function listConfigs(client: ManagerClient): Promise<readonly Config[]> {
  return (await client.call(methods.ListConfigs, ListConfigsRequest.create({}))).configs;
}

const create = command({
  operands: "CONFIG FILE|-",
  min: 2,
  max: 2,
  summary: "Creates a config from a file, or from standard input.",
  options: {
    label: { type: "string", short: "l", multiple: true, value: "KEY=VALUE" },
    "template-driver": { type: "string", value: "DRIVER", help: "golang: the content is a template" },
  },
  run: ({ values, operands: [name = "", path = "-"], shell }) => {
    const template = values["template-driver"];
    const spec = ConfigSpec.create({
      annotations: Annotations.create({ name, labels: parseLabels(values.label ?? []) }),
      data: contentFrom(path),
      templating: template === undefined ? null : Driver.create({ name: template }),
    });
    return withManager(shell, async (client) => {
      const { config } = await client.call(methods.CreateConfig, CreateConfigRequest.create({ spec }));
      shell.print(config?.id ?? "");
    });
  },
});

const ls = command({
  summary: "Lists configs.",
  options: {
    ...listingOptions,
    filter: { type: "string", multiple: true, short: "f", value: "KEY=VALUE", help: "id=, name= or label=" },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const configs = (await listConfigs(client)).filter(matchingNamed(values.filter ?? []));
      printListing(
        shell,
        contentListing(configs, shell.now(), (config) => Config.toJson(config)),
        values,
      );
    }),
});

/** For people: the content as the text that it mostly is. */
function pretty({ id, meta, spec }: Config, now: number): string {
  const { name = "", labels = {} } = spec?.annotations ?? {};
  const lines = [`ID:\t\t${id}`, `Name:\t\t${name}`];
  const entries = Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1));
  if (entries.length > 0) lines.push("Labels:", ...entries.map(([key, value]) => ` - ${key}=${value}`));
  lines.push(`Created:\t${ago(meta?.createdAt ?? null, now)}`, `Updated:\t${ago(meta?.updatedAt ?? null, now)}`);
  return [...lines, "Data:", Buffer.from(spec?.data ?? new Uint8Array()).toString("utf8")].join("\n");
}

const inspect = command({
  operands: "CONFIG [CONFIG...]",
  min: 1,
  summary: "Shows everything that the cluster knows about configs.",
  options: { format: { type: "string" }, pretty: { type: "boolean", help: "for people rather than programs" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      if (values.pretty === true && values.format !== undefined) {
        throw new UsageError("--format is incompatible with --pretty");
      }
      const all = await listConfigs(client);
      const found: Config[] = [];
      for (const operand of operands) {
        const { id } = findNamed("config", operand, all);
        const { config } = await client.call(methods.GetConfig, GetConfigRequest.create({ configId: id }));
        if (config !== null) found.push(config);
      }
      if (values.pretty === true) {
        shell.print(found.map((config) => pretty(config, shell.now())).join("\n\n"));
        return;
      }
      printObjects(
        shell,
        found.map((config) => Config.toJson(config)),
        values.format,
      );
    }),
});

const rm = command({
  operands: "CONFIG [CONFIG...]",
  min: 1,
  summary: "Removes configs that no service uses.",
  options: {},
  run: ({ operands, shell }) =>
    withManager(shell, async (client) => {
      for (const operand of operands) {
        const { id } = findNamed("config", operand, await listConfigs(client));
        await client.call(methods.RemoveConfig, RemoveConfigRequest.create({ configId: id }));
        shell.print(operand);
      }
    }),
});

export const commands: Readonly<Record<string, Command>> = { create, ls, inspect, rm };
