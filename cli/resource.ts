/** `muster resource`: create, ls, inspect, update, rm. A resource's content is opaque to Muster. */
import { resourceObject } from "../lib/docker-objects/index.ts";
import {
  Annotations,
  Any,
  ControlService,
  CreateResourceRequest,
  GetResourceRequest,
  ListResourcesRequest,
  ListResourcesRequest_Filters,
  RemoveResourceRequest,
  Resource,
  UpdateResourceRequest,
} from "../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { contentFrom, contentListing, findNamed, matchingNamed } from "./content.ts";
import { withManager, type ManagerClient } from "./manager-client.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import { printListing } from "./table.ts";
import { ownKinds } from "../machines/validation/resource.ts";
import { parseLabels } from "./values.ts";

const methods = ControlService.methods;

/** With annotations at the top level, as `matchingNamed` and `contentListing` expect them. */
function listed(resource: Resource) {
  return { ...resource, spec: resource };
}

async function listResources(client: ManagerClient, kind = "") {
  const filters = ListResourcesRequest_Filters.create({ kind });
  const { resources } = await client.call(methods.ListResources, ListResourcesRequest.create({ filters }));
  return resources.map(listed);
}

const typeFlag = {
  type: "string",
  value: "URL",
  help: "Type URL of the content (google.protobuf.Any's type_url)",
} as const;

const create = command({
  operands: "KIND RESOURCE [FILE|-]",
  min: 2,
  max: 3,
  summary: "Create a resource of a registered kind from a file or standard input.",
  options: {
    label: { type: "string", short: "l", multiple: true, value: "KEY=VALUE", help: "Resource label" },
    type: typeFlag,
  },
  completes: [],
  examples: [{ line: "muster resource create policy open ./open.json --type example.com/Policy", does: "from a file" }],
  run: ({ values, operands: [kind = "", name = "", path], shell }) => {
    const payload =
      path === undefined && values.type === undefined
        ? null
        : Any.create({ type_url: values.type ?? "", value: path === undefined ? new Uint8Array() : contentFrom(path) });
    const annotations = Annotations.create({ name, labels: parseLabels(values.label ?? []) });
    return withManager(shell, async (client) => {
      const request = CreateResourceRequest.create({ annotations, kind, payload });
      const { resource } = await client.call(methods.CreateResource, request);
      shell.print(resource?.id ?? "");
    });
  },
});

const ls = command({
  summary: "List resources, except those that the cluster itself stores.",
  options: {
    ...listingOptions,
    all: { type: "boolean", short: "a", help: "Include objects that the cluster itself stores" },
    filter: { type: "string", multiple: true, short: "f", value: "KEY=VALUE", help: "Filter by id=, name= or label=" },
    kind: { type: "string", value: "KIND", help: "Only objects of this kind, which may be one of the cluster's own" },
  },
  examples: [{ line: "muster resource ls --kind policy", does: "resources of one kind" }],
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const isAsked = values.all === true || values.kind !== undefined;
      const resources = (await listResources(client, values.kind))
        .filter(({ kind }) => isAsked || !ownKinds.has(kind))
        .filter(matchingNamed(values.filter ?? []));
      const listing = contentListing(resources, shell.now(), ({ spec }) => Resource.toJson(spec), {
        heading: "KIND",
        cell: ({ kind }) => kind,
      });
      printListing(shell, listing, values);
    }),
});

const inspect = command({
  operands: "RESOURCE [RESOURCE...]",
  min: 1,
  summary: "Display detailed information on one or more resources.",
  options: inspectOptions,
  completes: [],
  examples: [{ line: "muster resource inspect open", does: "one resource" }],
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const all = await listResources(client);
      const find = async (operand: string): Promise<Resource | null> => {
        const { id } = findNamed("resource", operand, all);
        return (await client.call(methods.GetResource, GetResourceRequest.create({ resourceId: id }))).resource;
      };
      await inspectEach({ shell, operands, format: values.format }, find, (resource) => ({
        docker: resourceObject(resource),
        wire: () => Resource.toJson(resource),
      }));
    }),
});

const update = command({
  operands: "RESOURCE [FILE|-]",
  min: 1,
  max: 2,
  summary: "Update the content or labels of a resource.",
  options: {
    "label-add": { type: "string", multiple: true, value: "KEY=VALUE", help: "Add or update a label" },
    "label-rm": { type: "string", multiple: true, value: "KEY", help: "Remove a label" },
    type: typeFlag,
  },
  completes: [],
  examples: [
    {
      line: "muster resource update open ./open.json --label-add reviewed=yes",
      does: "new content and one more label",
    },
  ],
  run: ({ values, operands: [name = "", path], shell }) =>
    withManager(shell, async (client) => {
      const { id, meta, annotations, payload } = findNamed("resource", name, await listResources(client));
      const removed = new Set(values["label-rm"] ?? []);
      const kept = Object.entries(annotations?.labels ?? {}).filter(([key]) => !removed.has(key));
      const labels = { ...Object.fromEntries(kept), ...parseLabels(values["label-add"] ?? [], "label-add") };
      const before = payload ?? Any.create({});
      const request = UpdateResourceRequest.create({
        resourceId: id,
        resourceVersion: meta?.version ?? null,
        annotations: Annotations.patch(annotations ?? Annotations.create({}), { labels }),
        payload:
          path === undefined && values.type === undefined
            ? null
            : Any.create({
                type_url: values.type ?? before.type_url,
                value: path === undefined ? before.value : contentFrom(path),
              }),
      });
      await client.call(methods.UpdateResource, request);
      shell.print(name);
    }),
});

const rm = command({
  operands: "RESOURCE [RESOURCE...]",
  min: 1,
  summary: "Remove one or more resources.",
  options: {},
  completes: [],
  examples: [{ line: "muster resource rm open", does: "one resource" }],
  run: ({ operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = findNamed("resource", operand, await listResources(client));
        await client.call(methods.RemoveResource, RemoveResourceRequest.create({ resourceId: id }));
        shell.print(operand);
      }),
    ),
});

export const commands: Readonly<Record<string, Command>> = { create, ls, inspect, update, rm };
