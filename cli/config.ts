/** `muster config`: create, ls, inspect, rm. Unlike a secret's, the content can be read again. */
import { configObject } from "../lib/docker-objects/index.ts";
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
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { contentFrom, contentListing, findNamed, matchingNamed, prettyContent } from "./content.ts";
import { withManager, type ManagerClient } from "./manager-client.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import { printListing } from "./table.ts";
import { parseLabels } from "./values.ts";

const methods = ControlService.methods;

async function listConfigs(client: ManagerClient): Promise<readonly Config[]> {
  return (await client.call(methods.ListConfigs, ListConfigsRequest.create({}))).configs;
}

const create = command({
  operands: "CONFIG FILE|-",
  min: 2,
  max: 2,
  summary: "Create a config from a file or standard input.",
  options: {
    label: { type: "string", short: "l", multiple: true, value: "KEY=VALUE", help: "Config label" },
    "template-driver": {
      type: "string",
      value: "DRIVER",
      help: "Template driver; golang makes the content a template",
    },
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
  summary: "List configs.",
  options: {
    ...listingOptions,
    filter: { type: "string", multiple: true, short: "f", value: "KEY=VALUE", help: "Filter by id=, name= or label=" },
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

/** Human-readable; the content is printed as text. */
function pretty(config: Config, now: number): string {
  const content = Buffer.from(config.spec?.data ?? new Uint8Array()).toString("utf8");
  return [...prettyContent(config, now), "Data:", content].join("\n");
}

const inspect = command({
  operands: "CONFIG [CONFIG...]",
  min: 1,
  summary: "Display detailed information on one or more configs.",
  options: { ...inspectOptions, pretty: { type: "boolean", help: "Print in a human-friendly format" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      if (values.pretty === true && values.format !== undefined) {
        throw new UsageError("--format is incompatible with --pretty");
      }
      const all = await listConfigs(client);
      const find = async (operand: string): Promise<Config | null> => {
        const { id } = findNamed("config", operand, all);
        return (await client.call(methods.GetConfig, GetConfigRequest.create({ configId: id }))).config;
      };
      if (values.pretty === true) {
        const found: string[] = [];
        await eachOperand(operands, async (operand) => {
          const config = await find(operand);
          if (config !== null) found.push(pretty(config, shell.now()));
        }).finally(() => found.length > 0 && shell.print(found.join("\n\n")));
        return;
      }
      await inspectEach({ shell, operands, format: values.format }, find, (config) => ({
        docker: configObject(config),
        wire: () => Config.toJson(config),
      }));
    }),
});

const rm = command({
  operands: "CONFIG [CONFIG...]",
  min: 1,
  summary: "Remove one or more configs that no service uses.",
  options: {},
  run: ({ operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = findNamed("config", operand, await listConfigs(client));
        await client.call(methods.RemoveConfig, RemoveConfigRequest.create({ configId: id }));
        shell.print(operand);
      }),
    ),
});

export const commands: Readonly<Record<string, Command>> = { create, ls, inspect, rm };
