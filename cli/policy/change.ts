/** `muster policy apply` and `rm`, with their checks before a write. */
import {
  defaultTier,
  encodePolicyObject,
  policyKinds,
  resourceNameOf,
  type PolicyKind,
  type PolicyObject,
} from "../../machines/policy/objects.ts";
import {
  Annotations,
  ControlService,
  CreateExtensionRequest,
  CreateResourceRequest,
  RemoveResourceRequest,
  Resource,
  UpdateResourceRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { command } from "../command.ts";
import { contentFrom } from "../content.ts";
import { withManager, type ManagerClient } from "../manager-client.ts";
import { eachOperand } from "../operands.ts";
import { mistake } from "../stack/located.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { clusterFacts } from "../../machines/policy/calculate.ts";
import { objectsOf, readCluster, unknownPortsOf, type PolicyCluster } from "./cluster.ts";
import { cutsOff } from "./cut-off.ts";
import { readPolicies, type LocatedObject } from "./file.ts";
import { findObject, kindOrder, nameOf } from "./objects.ts";

const methods = ControlService.methods;

const forceFlag = {
  type: "boolean",
  help: "Apply even if only the failsafe ports would still let nodes reach a manager",
} as const;

/** Throws UserError, unless forced, when the change newly cuts off a manager. */
function refuseCutOff(before: PolicyCluster, resources: readonly Resource[], force: boolean): void {
  if (force || cutsOff(before, clusterFacts(before)) !== null) return;
  const after = { ...before, resources };
  const why = cutsOff(after, clusterFacts(after));
  if (why !== null) throw new UserError(`${why}; nothing was changed (use --force to override)`);
}

/** A policy's tier must exist or be applied with it. */
function checkTiers(objects: readonly LocatedObject[], cluster: PolicyCluster): void {
  const tiers = new Set([defaultTier]);
  for (const of of [...objectsOf(cluster), ...objects.map((each) => each.of)])
    if (of.kind === "Tier") tiers.add(of.object.name);
  for (const { of, placeOf } of objects)
    if (of.kind === "NetworkPolicy" && of.object.tier !== "" && !tiers.has(of.object.tier))
      throw mistake(placeOf("spec.tier"), "spec.tier", `refers to a tier that does not exist: ${of.object.tier}`);
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

export const apply = command({
  summary: "Create or update policies, profiles, host endpoints and tiers from files.",
  options: {
    filename: {
      type: "string",
      short: "f",
      multiple: true,
      value: "FILE",
      help: "YAML file, or - for standard input",
      completes: "file",
    },
    force: forceFlag,
  },
  completes: [],
  examples: [{ line: "muster policy apply -f ./policies.yaml", does: "everything in a file" }],
  run: ({ values, shell }) => {
    const files = values.filename ?? [];
    if (files.length === 0) throw new UsageError("'muster policy apply' requires at least one -f FILE");
    const objects = files.flatMap((file) => readPolicies(new TextDecoder().decode(contentFrom(file)), file));
    return withManager(shell, async (client) => {
      const cluster = await readCluster(client);
      checkTiers(objects, cluster);
      const written = objects.map(({ of }) => withObject(cluster, of));
      const names = new Set(written.map(({ annotations }) => annotations?.name));
      const kept = cluster.resources.filter(({ annotations }) => !names.has(annotations?.name));
      refuseCutOff(cluster, [...kept, ...written], values.force ?? false);
      for (const kind of new Set(objects.map(({ of }) => of.kind))) await ensureExtension(client, kind);
      // Apply referenced objects first.
      for (const { of } of objects.toSorted((a, b) => kindOrder.indexOf(a.of.kind) - kindOrder.indexOf(b.of.kind)))
        shell.print(`${of.kind}/${of.object.name} ${await write(client, cluster, of)}`);
      const facts = clusterFacts(cluster);
      for (const { of } of objects) for (const { text } of unknownPortsOf(of, facts)) shell.remark(`warning: ${text}`);
    });
  },
});

export const rm = command({
  operands: "NAME [NAME...]",
  min: 1,
  summary: "Remove policies, profiles, host endpoints and tiers.",
  options: { force: forceFlag },
  completes: ["policy"],
  examples: [{ line: "muster policy rm web", does: "remove a policy by name" }],
  run: ({ operands, shell, values }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const cluster = await readCluster(client);
        const resource = findObject(cluster.resources, operand);
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
    throw new UserError(`tier ${name} still has policies: ${users.map(({ object }) => object.name).join(", ")}`);
}
