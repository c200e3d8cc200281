/** `muster extension`: create, ls, inspect, rm. An extension registers a kind of custom objects (`muster resource`). */
import { extensionObject } from "../lib/docker-objects/index.ts";
import {
  Annotations,
  ControlService,
  CreateExtensionRequest,
  Extension,
  GetExtensionRequest,
  ListExtensionsRequest,
  OperatorService,
  RemoveExtensionRequest,
} from "../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { contentListing, findNamed, matchingNamed } from "./content.ts";
import { withManager, type ManagerClient } from "./manager-client.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import { printListing } from "./table.ts";
import { parseLabels } from "./values.ts";

const methods = ControlService.methods;

/** With annotations at the top level, as `matchingNamed` and `contentListing` expect them. */
function listed(extension: Extension) {
  return { ...extension, spec: extension };
}

async function listExtensions(client: ManagerClient) {
  const { extensions } = await client.call(OperatorService.methods.ListExtensions, ListExtensionsRequest.create({}));
  return extensions.map(listed);
}

const create = command({
  operands: "EXTENSION",
  min: 1,
  max: 1,
  summary: "Register a kind of custom objects; the name is the kind.",
  options: {
    description: { type: "string", value: "TEXT", help: "Description of these objects" },
    label: { type: "string", short: "l", multiple: true, value: "KEY=VALUE", help: "Extension label" },
  },
  examples: [{ line: "muster extension create policy --description 'allowed connections'", does: "register a kind" }],
  run: ({ values, operands: [name = ""], shell }) =>
    withManager(shell, async (client) => {
      const annotations = Annotations.create({ name, labels: parseLabels(values.label ?? []) });
      const request = CreateExtensionRequest.create({ annotations, description: values.description ?? "" });
      const { extension } = await client.call(methods.CreateExtension, request);
      shell.print(extension?.id ?? "");
    }),
});

const ls = command({
  summary: "List registered kinds.",
  options: {
    ...listingOptions,
    filter: { type: "string", multiple: true, short: "f", value: "KEY=VALUE", help: "Filter by id=, name= or label=" },
  },
  examples: [{ line: "muster extension ls", does: "all kinds" }],
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const extensions = (await listExtensions(client)).filter(matchingNamed(values.filter ?? []));
      const listing = contentListing(extensions, shell.now(), ({ spec }) => Extension.toJson(spec), {
        heading: "DESCRIPTION",
        cell: ({ description }) => description,
      });
      printListing(shell, listing, values);
    }),
});

const inspect = command({
  operands: "EXTENSION [EXTENSION...]",
  min: 1,
  summary: "Display detailed information on one or more extensions.",
  options: inspectOptions,
  examples: [{ line: "muster extension inspect policy", does: "one kind" }],
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const all = await listExtensions(client);
      const find = async (operand: string): Promise<Extension | null> => {
        const { id } = findNamed("extension", operand, all);
        return (await client.call(methods.GetExtension, GetExtensionRequest.create({ extensionId: id }))).extension;
      };
      await inspectEach({ shell, operands, format: values.format }, find, (extension) => ({
        docker: extensionObject(extension),
        wire: () => Extension.toJson(extension),
      }));
    }),
});

const rm = command({
  operands: "EXTENSION [EXTENSION...]",
  min: 1,
  summary: "Remove one or more kinds that have no objects.",
  options: {},
  examples: [{ line: "muster extension rm policy", does: "fails while resources of this kind exist" }],
  run: ({ operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = findNamed("extension", operand, await listExtensions(client));
        await client.call(methods.RemoveExtension, RemoveExtensionRequest.create({ extensionId: id }));
        shell.print(operand);
      }),
    ),
});

export const commands: Readonly<Record<string, Command>> = { create, ls, inspect, rm };
