/** `muster secret`: create, ls, inspect, rm. Content is write-only. */
import { secretObject } from "../lib/docker-objects/index.ts";
import {
  Annotations,
  ControlService,
  CreateSecretRequest,
  Driver,
  GetSecretRequest,
  ListSecretsRequest,
  RemoveSecretRequest,
  Secret,
  SecretSpec,
} from "../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { contentFrom, contentListing, findNamed, matchingNamed, prettyContent } from "./content.ts";
import { withManager, type ManagerClient } from "./manager-client.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import { printListing } from "./table.ts";
import { parseLabels } from "./values.ts";

const methods = ControlService.methods;

async function listSecrets(client: ManagerClient): Promise<readonly Secret[]> {
  return (await client.call(methods.ListSecrets, ListSecretsRequest.create({}))).secrets;
}

const create = command({
  operands: "SECRET [FILE|-]",
  min: 1,
  max: 2,
  summary: "Create a secret from a file or standard input.",
  options: {
    label: { type: "string", short: "l", multiple: true, value: "KEY=VALUE", help: "Secret label" },
    driver: { type: "string", short: "d", value: "DRIVER", help: "Secret driver that provides the content" },
    "template-driver": {
      type: "string",
      value: "DRIVER",
      help: "Template driver; golang makes the content a template",
    },
  },
  run: ({ values, operands: [name = "", path], shell }) => {
    if (values.driver === undefined && path === undefined) {
      throw new UsageError("the content is missing: use 'muster secret create SECRET FILE', or '-' for standard input");
    }
    if (values.driver !== undefined && path !== undefined) {
      throw new UsageError("the secret's driver provides the content: omit the file");
    }
    const template = values["template-driver"];
    const spec = SecretSpec.create({
      annotations: Annotations.create({ name, labels: parseLabels(values.label ?? []) }),
      data: path === undefined ? new Uint8Array() : contentFrom(path),
      driver: values.driver === undefined ? null : Driver.create({ name: values.driver }),
      templating: template === undefined ? null : Driver.create({ name: template }),
    });
    return withManager(shell, async (client) => {
      const { secret } = await client.call(methods.CreateSecret, CreateSecretRequest.create({ spec }));
      if (values.driver !== undefined) {
        shell.remark(
          "warning: Muster's managers do not support secret drivers: tasks that use the secret fail to start",
        );
      }
      shell.print(secret?.id ?? "");
    });
  },
});

const ls = command({
  summary: "List secrets.",
  options: {
    ...listingOptions,
    filter: { type: "string", multiple: true, short: "f", value: "KEY=VALUE", help: "Filter by id=, name= or label=" },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const secrets = (await listSecrets(client)).filter(matchingNamed(values.filter ?? []));
      const driverOf = ({ spec }: Secret): string => spec?.driver?.name ?? "";
      printListing(
        shell,
        contentListing(secrets, shell.now(), (secret) => Secret.toJson(secret), {
          heading: "DRIVER",
          cell: driverOf,
        }),
        values,
      );
    }),
});

const inspect = command({
  operands: "SECRET [SECRET...]",
  min: 1,
  summary: "Display detailed information on one or more secrets, without their content.",
  options: { ...inspectOptions, pretty: { type: "boolean", help: "Print in a human-friendly format" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const all = await listSecrets(client);
      const find = async (operand: string): Promise<Secret | null> => {
        const { id } = findNamed("secret", operand, all);
        return (await client.call(methods.GetSecret, GetSecretRequest.create({ secretId: id }))).secret;
      };
      if (values.pretty === true) {
        if (values.format !== undefined) throw new UsageError("--format is incompatible with --pretty");
        const found: string[] = [];
        await eachOperand(operands, async (operand) => {
          const secret = await find(operand);
          if (secret !== null) found.push(prettyContent(secret, shell.now()).join("\n"));
        }).finally(() => found.length > 0 && shell.print(found.join("\n\n")));
        return;
      }
      await inspectEach({ shell, operands, format: values.format }, find, (secret) => ({
        docker: secretObject(secret),
        wire: () => Secret.toJson(secret),
      }));
    }),
});

const rm = command({
  operands: "SECRET [SECRET...]",
  min: 1,
  summary: "Remove one or more secrets that no service uses.",
  options: {},
  run: ({ operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = findNamed("secret", operand, await listSecrets(client));
        await client.call(methods.RemoveSecret, RemoveSecretRequest.create({ secretId: id }));
        shell.print(operand);
      }),
    ),
});

export const commands: Readonly<Record<string, Command>> = { create, ls, inspect, rm };
