/** `muster policy ls`, `inspect` and `explain`. */
import { nodeNames } from "../../machines/node-names.ts";
import { calculateNode, clusterFacts } from "../../machines/policy/calculate.ts";
import {
  compareOrder,
  defaultTier,
  orderOf,
  readPolicyObject,
  type PolicyKind,
} from "../../machines/policy/objects.ts";
import { Resource } from "../../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { withManager } from "../manager-client.ts";
import { inspectEach } from "../operands.ts";
import { printListing, type Row } from "../table.ts";
import { readCluster } from "./cluster.ts";
import { explain as explainTraffic, parseTraffic } from "./explain.ts";
import { findObject, kindOrder, nameOf, objectJson } from "./objects.ts";

function rowOf(resource: Resource): {
  readonly row: Row;
  readonly sort: { readonly order: number; readonly name: string };
} {
  const of = readPolicyObject(resource);
  const shown = (tier: string, order: string, rest: string): readonly string[] => [
    `${resource.kind}/${nameOf(resource)}`,
    tier,
    order,
    rest,
  ];
  const order = of?.kind === "NetworkPolicy" || of?.kind === "Tier" ? orderOf(of.object.order) : 0;
  const orderText = Number.isFinite(order) ? String(order) : "";
  const cells = ((): readonly string[] => {
    switch (of?.kind) {
      case "NetworkPolicy": {
        const { appliesEgress, appliesIngress, egress, ingress, selector, tier } = of.object;
        const counts = [
          ...(appliesIngress ? [`${ingress.length} in`] : []),
          ...(appliesEgress ? [`${egress.length} out`] : []),
        ];
        return [
          ...shown(tier === "" ? defaultTier : tier, orderText, selector === "" ? "all()" : selector),
          counts.join(", "),
        ];
      }
      case "NetworkProfile":
        return [...shown("", "", ""), `${of.object.ingress.length} in, ${of.object.egress.length} out`];
      case "HostEndpoint":
        return [...shown("", "", `${of.object.node} ${of.object.interface}`.trim()), ""];
      case "Tier":
        return [...shown(of.object.name, orderText, ""), of.object.defaultAction === "pass" ? "pass" : "deny"];
      default:
        return [...shown("", "", "unreadable"), ""];
    }
  })();
  return {
    row: { id: cells[0] as string, cells, object: () => objectJson(resource) },
    sort: { order: kindOrder.indexOf(resource.kind as PolicyKind), name: nameOf(resource) },
  };
}

export const ls = command({
  summary: "List policies, profiles, host endpoints and tiers.",
  options: listingOptions,
  examples: [{ line: "muster policy ls", does: "all policies, with their selectors" }],
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const { resources } = await readCluster(client);
      const rows = resources.map(rowOf).toSorted((a, b) => compareOrder(a.sort, b.sort));
      const headings = ["NAME", "TIER", "ORDER", "CHOOSES", "RULES"];
      printListing(shell, { headings, rows: rows.map(({ row }) => row) }, values);
    }),
});

export const inspect = command({
  operands: "NAME [NAME...]",
  min: 1,
  summary: "Display detailed information on policies, profiles, host endpoints and tiers.",
  options: inspectOptions,
  completes: ["policy"],
  examples: [{ line: "muster policy inspect Tier/front", does: "one object, by kind and name" }],
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const cluster = await readCluster(client);
      const facts = clusterFacts(cluster);
      const nameOfNode = nodeNames(cluster.nodes);
      const nodes = cluster.nodes.map((node) => ({ name: nameOfNode(node.id), state: calculateNode(facts, node.id) }));
      await inspectEach(
        { shell, operands, format: values.format },
        (operand) => Promise.resolve(findObject(cluster.resources, operand)),
        (resource) => {
          const name = nameOf(resource);
          const activeOn = nodes
            .filter(({ state }) =>
              resource.kind === "NetworkPolicy"
                ? [...state.policies.values()].some(({ id }) => id?.name === name)
                : resource.kind === "NetworkProfile" && state.profiles.has(name),
            )
            .map((each) => each.name);
          const isActive = resource.kind === "NetworkPolicy" || resource.kind === "NetworkProfile";
          const { object } = objectJson(resource);
          return {
            docker: {
              ID: resource.id,
              Kind: resource.kind,
              Name: name,
              Spec: object ?? null,
              ...(isActive ? { ActiveOn: activeOn } : {}),
            },
            wire: () => Resource.toJson(resource),
          };
        },
      );
    }),
});

export const explain = command({
  operands: "FROM TO TRAFFIC",
  min: 3,
  max: 3,
  summary: "Explain whether a connection is allowed, by which rule and on which side.",
  options: {
    format: {
      type: "string",
      value: "FORMAT",
      help: "Output format: text or json (default text)",
      completes: ["text", "json"],
    },
  },
  completes: ["service", "task", "node"],
  examples: [
    { line: "muster policy explain web db tcp/5432", does: "between tasks of two services" },
    { line: "muster policy explain 203.0.113.7 web.1 tcp/80", does: "from outside the cluster to one task" },
  ],
  run: ({ operands: [from = "", to = "", traffic = ""], shell, values }) => {
    parseTraffic(traffic);
    const { format = "text" } = values;
    if (format !== "text" && format !== "json")
      throw new UsageError(`invalid argument "${format}" for "--format" flag: expected text or json`);
    return withManager(shell, async (client) => {
      const cluster = await readCluster(client);
      const { allowed, remarks, sides, title } = explainTraffic(cluster, clusterFacts(cluster), { from, to, traffic });
      if (format === "json") return shell.print(JSON.stringify({ allowed, title, sides, remarks }));
      shell.print(title);
      for (const { text } of sides) shell.print(`  ${text}`);
      if (sides.length === 0) shell.print("  no policy applies: neither end is in the cluster");
      for (const remark of remarks) shell.print(`  ${remark}`);
    });
  },
});
