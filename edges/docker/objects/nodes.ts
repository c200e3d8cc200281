/** `/nodes`. */
import {
  ControlService,
  ListNodesRequest,
  ListNodesRequest_Filters,
  NodeRole,
  NodeSpec_Membership,
  RemoveNodeRequest,
  UpdateNodeRequest,
  Version,
} from "../../../proto/gen/messages.ts";
import { nodeObject } from "../../../lib/docker-objects/index.ts";
import { nodeBody } from "../bodies/node.ts";
import { Failure } from "../failure.ts";
import type { Filters } from "../filters.ts";
import { findNode } from "../find.ts";
import { isSet, versionOf } from "../go-text.ts";
import { bodyOf, filtersOf, ok, writeList, type Handler } from "../request.ts";
import { writtenOnce } from "../written.ts";

const { methods } = ControlService;

/** The enum values that a filter names; empty words are ignored. Throws Failure. */
export function wordsOf<Value extends number>(
  filters: Filters,
  name: string,
  values: Readonly<Record<string, Value>>,
): readonly Value[] {
  return filters.of(name).flatMap((word) => {
    if (word === "") return [];
    const key = word.toUpperCase();
    if (!Object.hasOwn(values, key)) throw new Failure(500, `Invalid ${name} filter: '${word}'`);
    return [values[key] as Value];
  });
}

const shown = writtenOnce(nodeObject);

export const listNodes: Handler = async (request) => {
  const filters = filtersOf(request).accept(["name", "id", "label", "role", "membership", "node.label"]);
  const { nodes } = await request.calls.unary(
    methods.ListNodes,
    ListNodesRequest.create({
      filters: ListNodesRequest_Filters.create({
        namePrefixes: filters.of("name"),
        idPrefixes: filters.of("id"),
        labels: filters.pairs("label"),
        nodeLabels: filters.pairs("node.label"),
        roles: wordsOf(filters, "role", NodeRole),
        memberships: wordsOf(filters, "membership", NodeSpec_Membership),
      }),
    }),
  );
  return writeList(request, nodes, shown);
};

export const inspectNode: Handler = async ({ calls, name }) => ok(shown(await findNode(calls, name)));

export const updateNode: Handler = async (request) => {
  const body = await bodyOf(request, nodeBody);
  const version = versionOf(request.query, "node");
  const spec = nodeBody.read(body);
  const { id } = await findNode(request.calls, request.name);
  await request.calls.unary(
    methods.UpdateNode,
    UpdateNodeRequest.create({ nodeId: id, nodeVersion: Version.create({ index: version }), spec }),
  );
  return ok();
};

export const removeNode: Handler = async ({ calls, name, query }) => {
  const { id } = await findNode(calls, name);
  await calls.unary(methods.RemoveNode, RemoveNodeRequest.create({ nodeId: id, force: isSet(query.get("force")) }));
  return ok();
};
