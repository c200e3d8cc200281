/** The whole trees of spans of what managers stream to readers and nodes: task output and network policy. */
import test from "ava";
import { encodePolicyObject, policyKinds, resourceNameOf } from "../../machines/policy/objects.ts";
import {
  Annotations,
  ControlService,
  HostEndpoint,
  CreateExtensionRequest,
  CreateResourceRequest,
  LogSelector,
  LogsService,
  LogSubscriptionOptions,
  NetworkPolicy,
  PolicyRule,
  SubscribeLogsRequest,
  UpdateResourceRequest,
} from "../../proto/gen/messages.ts";
import { simService } from "../../simulation/workloads/services.ts";
import { tracedCluster, varying } from "./traced.ts";

const { CreateExtension, CreateResource, UpdateResource } = ControlService.methods;

test("a log subscription's trace has the output of each node", async (t) => {
  const { world, create } = await tracedCluster();
  await create(simService({ name: "web", replicas: 2 }));
  await world.pass(5_000);
  const serviceIds = [...(world.leader?.running?.store.all("service") ?? [])].map(({ id }) => id);
  const selector = LogSelector.create({ serviceIds });
  const request = SubscribeLogsRequest.create({ selector, options: LogSubscriptionOptions.create({ follow: false }) });
  let lines = 0;
  const traceId = await world.command("service logs", (channel, options) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    channel.serverStream(
      LogsService.methods.SubscribeLogs,
      request,
      {
        onMessage: ({ messages }) => (lines += messages.length),
        onEnd: (error) => (error === null ? resolve() : reject(error)),
      },
      options,
    );
    return promise;
  });
  t.true(lines > 10);
  world.assertTrace(
    t,
    traceId,
    `
      service logs [person]
        logs subscribe [m3]
          logs publish [m1] node.id=a1
          logs read [a1] node.id=a1 tasks=1
          logs read [a2] node.id=a2 tasks=1
          logs publish [m1] node.id=a2
    `,
    varying,
  );
});

test("a changed network policy is traced to each node that it is sent to", async (t) => {
  const { world } = await tracedCluster({ dataplanes: true });
  const kind = "NetworkPolicy" as const;
  const payload = (action: string) => {
    const ingress = [PolicyRule.create({ action })];
    const object = NetworkPolicy.create({ name: "front", selector: "", appliesIngress: true, ingress });
    return encodePolicyObject({ kind, object });
  };
  for (const each of ["NetworkPolicy", "HostEndpoint"] as const)
    await world.command("policy apply", (channel, options) => {
      const request = { annotations: Annotations.create({ name: each }), description: policyKinds[each] };
      return channel.unary(CreateExtension, CreateExtensionRequest.create(request), options);
    });
  await world.command("policy apply", (channel, options) => {
    const object = HostEndpoint.create({ name: "card", node: "a1", interface: "*" });
    const request = CreateResourceRequest.create({
      annotations: Annotations.create({ name: resourceNameOf("HostEndpoint", "card") }),
      kind: "HostEndpoint",
      payload: encodePolicyObject({ kind: "HostEndpoint", object }),
    });
    return channel.unary(CreateResource, request, options);
  });
  let resourceId = "";
  const annotations = Annotations.create({ name: resourceNameOf(kind, "front") });
  await world.command("policy apply", async (channel, options) => {
    const request = CreateResourceRequest.create({ annotations, kind, payload: payload("allow") });
    resourceId = (await channel.unary(CreateResource, request, options)).resource?.id ?? "";
  });
  await world.pass(5_000);
  const resourceVersion = world.leader?.running?.store.get("resource", resourceId)?.meta?.version ?? null;
  const traceId = await world.command("policy apply", (channel, options) => {
    const request = UpdateResourceRequest.create({
      resourceId,
      resourceVersion,
      annotations,
      payload: payload("deny"),
    });
    return channel.unary(UpdateResource, request, options);
  });
  await world.pass(5_000);
  world.assertTrace(
    t,
    traceId,
    `
      policy apply [person]
        resource update [m3] resource.id=NetworkPolicy.front
          ledger commit [m3]
            log append [m3]
          policy send [m1] node.id=a1
            policy apply [a1]
    `,
    varying,
  );
});
