/** `muster policy`: apply, ls, inspect, rm, explain, status. */
import { calculateNode } from "../machines/policy/calculate.ts";
import {
  compareOrder,
  defaultTier,
  encodePolicyObject,
  isPolicyKind,
  orderOf,
  policyKinds,
  readPolicyObject,
  resourceNameOf,
  type PolicyKind,
  type PolicyObject,
} from "../machines/policy/objects.ts";
import {
  Annotations,
  ControlService,
  CreateExtensionRequest,
  CreateResourceRequest,
  DataplaneReport,
  HostEndpoint,
  NetworkPolicy,
  NetworkProfile,
  RemoveResourceRequest,
  Resource,
  Tier,
  UpdateResourceRequest,
  type DataplaneEndpointReport,
} from "../proto/gen/messages.ts";
import { RpcError, Status } from "../runtime/rpc.ts";
import { command, inspectOptions, listingOptions, UsageError, type Command } from "./command.ts";
import { contentFrom } from "./content.ts";
import { nodeName, withManager, type ManagerClient } from "./manager-client.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import { cutsOff, factsOf, objectsOf, readCluster, type PolicyCluster } from "./policy/cluster.ts";
import { explain as explainTraffic, parseTraffic } from "./policy/explain.ts";
import { readPolicies, type LocatedObject } from "./policy/file.ts";
import { mistake } from "./stack/located.ts";
import { printListing, type Row } from "./table.ts";
import { UserError } from "./user-error.ts";

const methods = ControlService.methods;
const kindOrder = Object.keys(policyKinds) as PolicyKind[];

const forceFlag = {
  type: "boolean",
  help: "also when nodes could not reach a manager any more but for the failsafe ports",
} as const;

/** Throws UserError unless forced, when the change cuts a manager off that was not cut off before. */
function refuseCutOff(before: PolicyCluster, resources: readonly Resource[], force: boolean): void {
  if (force || cutsOff(before, factsOf(before)) !== null) return;
  const after = { ...before, resources };
  const why = cutsOff(after, factsOf(after));
  if (why !== null) throw new UserError(`${why}; nothing was changed (--force changes it all the same)`);
}

/** A policy has to be in a tier that is there, or comes with it. */
function checkTiers(objects: readonly LocatedObject[], cluster: PolicyCluster): void {
  const tiers = new Set([defaultTier]);
  for (const of of [...objectsOf(cluster), ...objects.map((each) => each.of)])
    if (of.kind === "Tier") tiers.add(of.object.name);
  for (const { of, placeOf } of objects)
    if (of.kind === "NetworkPolicy" && of.object.tier !== "" && !tiers.has(of.object.tier))
      throw mistake(placeOf("spec.tier"), "spec.tier", `names a tier that is not there: ${of.object.tier}`);
}

async function ensureExtension(client: ManagerClient, kind: PolicyKind): Promise<void> {
  const annotations = Annotations.create({ name: kind });
  try {
    await client.call(
      methods.CreateExtension,
      CreateExtensionRequest.create({ annotations, description: policyKinds[kind] }),
    );
  } catch (error) {
    if (!(error instanceof RpcError && error.code === Status.ALREADY_EXISTS)) throw error;
  }
}

function find(cluster: PolicyCluster, kind: PolicyKind, name: string): Resource | undefined {
  return cluster.resources.find((each) => each.kind === kind && nameOf(each) === name);
}

function nameOf(resource: Resource): string {
  const name = resource.annotations?.name ?? "";
  return name.startsWith(`${resource.kind}.`) ? name.slice(resource.kind.length + 1) : name;
}

function withObject(cluster: PolicyCluster, of: PolicyObject): Resource {
  const payload = encodePolicyObject(of);
  const before = find(cluster, of.kind, of.object.name);
  if (before !== undefined) return Resource.patch(before, { payload });
  const annotations = Annotations.create({ name: resourceNameOf(of.kind, of.object.name) });
  return Resource.create({ annotations, kind: of.kind, payload });
}

async function write(client: ManagerClient, cluster: PolicyCluster, of: PolicyObject): Promise<string> {
  const { annotations, kind, payload } = withObject(cluster, of);
  const before = find(cluster, of.kind, of.object.name);
  if (before === undefined) {
    await client.call(methods.CreateResource, CreateResourceRequest.create({ annotations, kind, payload }));
    return "created";
  }
  if (Buffer.from(before.payload?.value ?? []).equals(payload?.value ?? new Uint8Array())) return "unchanged";
  const resourceVersion = before.meta?.version ?? null;
  const request = UpdateResourceRequest.create({ resourceId: before.id, resourceVersion, annotations, payload });
  await client.call(methods.UpdateResource, request);
  return "changed";
}

const apply = command({
  summary: "Creates and changes policies, profiles, host endpoints and tiers as files say.",
  options: {
    filename: {
      type: "string",
      short: "f",
      multiple: true,
      value: "FILE",
      help: "YAML, or - for standard input",
      completes: "file",
    },
    force: forceFlag,
  },
  completes: [],
  examples: [{ line: "muster policy apply -f ./policies.yaml", does: "all that is in a file" }],
  run: ({ values, shell }) => {
    const files = values.filename ?? [];
    if (files.length === 0) throw new UsageError("'muster policy apply' needs at least one -f FILE");
    const objects = files.flatMap((file) => readPolicies(new TextDecoder().decode(contentFrom(file)), file));
    return withManager(shell, async (client) => {
      const cluster = await readCluster(client);
      checkTiers(objects, cluster);
      const written = objects.map(({ of }) => withObject(cluster, of));
      const names = new Set(written.map(({ annotations }) => annotations?.name));
      const kept = cluster.resources.filter(({ annotations }) => !names.has(annotations?.name));
      refuseCutOff(cluster, [...kept, ...written], values.force ?? false);
      for (const kind of new Set(objects.map(({ of }) => of.kind))) await ensureExtension(client, kind);
      // What others name comes first.
      for (const { of } of objects.toSorted((a, b) => kindOrder.indexOf(a.of.kind) - kindOrder.indexOf(b.of.kind)))
        shell.print(`${of.kind}/${of.object.name} ${await write(client, cluster, of)}`);
    });
  },
});

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
        return [...shown("", "", "cannot be read"), ""];
    }
  })();
  return {
    row: { id: cells[0] as string, cells, object: () => objectJson(resource) },
    sort: { order: kindOrder.indexOf(resource.kind as PolicyKind), name: nameOf(resource) },
  };
}

function objectJson(resource: Resource): Record<string, unknown> {
  const of = readPolicyObject(resource);
  return { kind: resource.kind, ...(of === null ? {} : { object: plain(of) }) };
}

function plain(of: PolicyObject): Record<string, unknown> {
  switch (of.kind) {
    case "NetworkPolicy":
      return NetworkPolicy.toJson(of.object);
    case "NetworkProfile":
      return NetworkProfile.toJson(of.object);
    case "HostEndpoint":
      return HostEndpoint.toJson(of.object);
    case "Tier":
      return Tier.toJson(of.object);
  }
}

const ls = command({
  summary: "Lists policies, profiles, host endpoints and tiers.",
  options: listingOptions,
  examples: [{ line: "muster policy ls", does: "all of them, with whom they choose" }],
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const { resources } = await readCluster(client);
      const rows = resources.map(rowOf).toSorted((a, b) => compareOrder(a.sort, b.sort));
      const headings = ["NAME", "TIER", "ORDER", "CHOOSES", "RULES"];
      printListing(shell, { headings, rows: rows.map(({ row }) => row) }, values);
    }),
});

/** `KIND/NAME`, or the name of a policy, or a name that only one object has. Throws UserError. */
function findObject({ resources }: PolicyCluster, operand: string): Resource {
  const slash = operand.indexOf("/");
  const [kind, name] = slash < 0 ? ["", operand] : [operand.slice(0, slash), operand.slice(slash + 1)];
  if (kind !== "" && !isPolicyKind(kind))
    throw new UserError(`no such kind: ${kind} (there are ${kindOrder.join(", ")})`);
  const named = resources.filter((each) => nameOf(each) === name && (kind === "" || each.kind === kind));
  const found = named.length === 1 ? named[0] : named.find((each) => each.kind === "NetworkPolicy");
  if (found !== undefined) return found;
  if (named.length === 0) throw new UserError(`no such policy: ${operand}`);
  throw new UserError(`${operand} is ambiguous: ${named.map((each) => `${each.kind}/${name}`).join(", ")}`);
}

const inspect = command({
  operands: "NAME [NAME...]",
  min: 1,
  summary: "Shows everything about policies, profiles, host endpoints and tiers.",
  options: inspectOptions,
  completes: [],
  examples: [{ line: "muster policy inspect Tier/front", does: "one of them, by kind and name" }],
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const cluster = await readCluster(client);
      const facts = factsOf(cluster);
      const nodes = cluster.nodes.map((node) => ({ name: nodeName(node), state: calculateNode(facts, node.id) }));
      await inspectEach(
        { shell, operands, format: values.format },
        (operand) => Promise.resolve(findObject(cluster, operand)),
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

const rm = command({
  operands: "NAME [NAME...]",
  min: 1,
  summary: "Removes policies, profiles, host endpoints and tiers.",
  options: { force: forceFlag },
  completes: [],
  examples: [{ line: "muster policy rm web", does: "a policy by its name" }],
  run: ({ operands, shell, values }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const cluster = await readCluster(client);
        const resource = findObject(cluster, operand);
        const rest = cluster.resources.filter(({ id }) => id !== resource.id);
        if (resource.kind === "Tier") refuseUsedTier(cluster, nameOf(resource));
        refuseCutOff(cluster, rest, values.force ?? false);
        await client.call(methods.RemoveResource, RemoveResourceRequest.create({ resourceId: resource.id }));
        shell.print(operand);
      }),
    ),
});

function refuseUsedTier(cluster: PolicyCluster, name: string): void {
  if (name === defaultTier) return;
  const users = objectsOf(cluster).filter((of) => of.kind === "NetworkPolicy" && of.object.tier === name);
  if (users.length > 0)
    throw new UserError(`tier ${name} has policies: ${users.map(({ object }) => object.name).join(", ")}`);
}

const explain = command({
  operands: "FROM TO TRAFFIC",
  min: 3,
  max: 3,
  summary: "Tells whether a connection is allowed, by which rule and on which side.",
  options: { format: { type: "string", value: "FORMAT", help: "text or json (text)", completes: ["text", "json"] } },
  completes: ["service", "task", "node"],
  examples: [
    { line: "muster policy explain web db tcp/5432", does: "between tasks of two services" },
    { line: "muster policy explain 203.0.113.7 web.1 tcp/80", does: "from outside to one task" },
  ],
  run: ({ operands: [from = "", to = "", traffic = ""], shell, values }) => {
    parseTraffic(traffic);
    const { format = "text" } = values;
    if (format !== "text" && format !== "json") throw new UsageError(`--format takes text or json, not '${format}'`);
    return withManager(shell, async (client) => {
      const cluster = await readCluster(client);
      const { allowed, remarks, sides, title } = explainTraffic(cluster, factsOf(cluster), { from, to, traffic });
      if (format === "json") return shell.print(JSON.stringify({ allowed, title, sides, remarks }));
      shell.print(title);
      for (const { text } of sides) shell.print(`  ${text}`);
      if (sides.length === 0) shell.print("  nothing here has a say: neither end is in the cluster");
      for (const remark of remarks) shell.print(`  ${remark}`);
    });
  },
});

function tally(endpoints: readonly DataplaneEndpointReport[]): string {
  const counts = Map.groupBy(endpoints, ({ status }) => status);
  return [...counts]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([status, of]) => `${of.length} ${status}`)
    .join(", ");
}

const status = command({
  summary: "Shows how each node's dataplane does: its driver, and what of its endpoints is in force.",
  options: listingOptions,
  examples: [{ line: "muster policy status", does: "one line for each node" }],
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const { nodes, reports } = await readCluster(client);
      const none = DataplaneReport.create({ state: "none" });
      const rows = nodes
        .map((node) => ({ node, report: reports.get(node.id) ?? none }))
        .toSorted((a, b) => (nodeName(a.node) < nodeName(b.node) ? -1 : 1))
        .map(({ node, report }) => ({
          id: node.id,
          cells: [
            nodeName(node) || node.id,
            report.state === "" ? "none" : report.state,
            tally(report.endpoints),
            tally(report.hostEndpoints),
            String(report.restarts),
            report.reason,
          ],
          object: () => ({ node: node.id, ...DataplaneReport.toJson(report) }),
        }));
      const headings = ["NODE", "DATAPLANE", "ENDPOINTS", "HOST ENDPOINTS", "RESTARTS", "REASON"];
      printListing(shell, { headings, rows }, values);
    }),
});

export const commands: Readonly<Record<string, Command>> = { apply, ls, inspect, rm, explain, status };
