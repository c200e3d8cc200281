// Containers that no service owns, in networks of the cluster.
import test from "ava";
import { createResourceAllocator } from "../../actors/resource-allocator.ts";
import {
  Annotations,
  AttachNetworkRequest,
  DetachNetworkRequest,
  EngineDescription,
  IPAMConfig,
  IPAMOptions,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  NodeDescription,
  PluginDescription,
  TaskState,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { testCluster } from "../support/cluster.ts";
import { call, refusalOf } from "../support/manager.ts";

const worker = call({ identity: { nodeId: "n1", role: "swarm-worker", organization: "c" }, local: false });
const other = call({ identity: { nodeId: "n2", role: "swarm-worker", organization: "c" }, local: false });

function network(id: string, subnet: string, attachable = true): Network {
  const ipam = IPAMOptions.create({ configs: [IPAMConfig.create({ family: 4, subnet })] });
  return Network.create({
    id,
    spec: NetworkSpec.create({ annotations: Annotations.create({ name: id }), attachable, ipam }),
  });
}

async function setUp(...networks: Network[]) {
  const cluster = await testCluster([]);
  for (const each of networks) cluster.seed("network", each);
  const plugins = [PluginDescription.create({ type: "Network", name: "overlay" })];
  const description = NodeDescription.create({ hostname: "engine", engine: EngineDescription.create({ plugins }) });
  for (const id of ["n1", "n2"]) await cluster.addNode(id, { description });
  const { handlers } = createResourceAllocator(cluster.env);
  const attach = async (target: string, address = "", by = worker): Promise<string> => {
    const config = NetworkAttachmentConfig.create({ target, addresses: address === "" ? [] : [address] });
    const answer = handlers.AttachNetwork(AttachNetworkRequest.create({ config, containerId: "c1" }), by);
    void Promise.resolve(answer).catch(() => {});
    await cluster.run();
    return (await answer).attachmentId;
  };
  const detach = async (attachmentId: string, by = worker): Promise<void> => {
    const answer = handlers.DetachNetwork(DetachNetworkRequest.create({ attachmentId }), by);
    void Promise.resolve(answer).catch(() => {});
    await cluster.run();
    await answer;
  };
  return { cluster, handlers, attach, detach };
}

test("a container gets an address after its node has one in that network, and releases it", async (t) => {
  const { cluster, attach, detach } = await setUp(network("net", "10.3.0.0/24"));
  const order: string[] = [];
  cluster.store.watch(({ changes }) => {
    for (const { table, object } of changes) {
      if (table === "node" && object.attachments.length > 0) order.push("node");
      if (table === "task" && object.networks.length > 0) order.push("task");
    }
  });
  const id = await attach("net");
  const task = cluster.store.get("task", id);
  t.is(task?.nodeId, "n1");
  t.is(task?.spec?.attachment?.containerId, "c1");
  t.true((task?.status?.state ?? 0) >= TaskState.ASSIGNED);
  t.deepEqual(task?.networks[0]?.addresses, ["10.3.0.2/24"]);
  t.deepEqual(cluster.store.get("node", "n1")?.attachments[0]?.addresses, ["10.3.0.3/24"]);
  t.deepEqual(order.slice(0, 2), ["node", "task"]);
  t.deepEqual(await refusalOf(() => detach(id, other)), {
    code: Status.PERMISSION_DENIED,
    message: `attachment ${id} doesn't belong to this node`,
  });
  await detach(id);
  t.is(cluster.store.get("task", id), undefined);
  t.deepEqual(cluster.store.get("node", "n1")?.attachments, []);
  t.deepEqual(await refusalOf(() => detach(id)), { code: Status.NOT_FOUND, message: `attachment ${id} not found` });
});

test("a specific address can be requested; one in use is refused with the reason, and nothing stays allocated", async (t) => {
  const { cluster, attach, detach } = await setUp(network("net", "10.3.0.0/24"));
  const first = await attach("net", "10.3.0.77");
  t.deepEqual(cluster.store.get("task", first)?.networks[0]?.addresses, ["10.3.0.77/24"]);
  t.deepEqual(await refusalOf(() => attach("net", "10.3.0.77", other)), {
    code: Status.FAILED_PRECONDITION,
    message: "network net: address 10.3.0.77 is already in use",
  });
  t.is(cluster.store.count("task"), 1);
  await detach(first);
  t.is(cluster.store.get("task", await attach("net", "10.3.0.77", other))?.nodeId, "n2");
});

test("a node that attaches constantly is rejected beyond its budget, and others are not", async (t) => {
  const { attach, detach, cluster } = await setUp(network("net", "10.0.0.0/8"));
  const addresses = Array.from({ length: 2_000 }, () => "10.0.0.0");
  const large = NetworkAttachmentConfig.create({ target: "net", addresses });
  const { handlers } = createResourceAllocator(cluster.env);
  const refused: unknown[] = [];
  for (let at = 0; at < 60; at += 1) {
    const answer = refusalOf(() => handlers.AttachNetwork(AttachNetworkRequest.create({ config: large }), worker));
    await cluster.run();
    const refusal = await answer;
    if (refusal?.code === Status.UNAVAILABLE) refused.push(refusal);
  }
  t.true(refused.length > 5, `${refused.length} of 60`);
  t.deepEqual(refused[0], { code: Status.UNAVAILABLE, message: "node n1 exceeded rate limit of network attachments" });
  await detach(await attach("net", "", other), other);
});

test("a network that cannot be attached to is rejected as by SwarmKit", async (t) => {
  const { attach, detach, handlers } = await setUp(network("closed", "10.3.0.0/24", false));
  t.deepEqual(await refusalOf(() => attach("nowhere")), {
    code: Status.NOT_FOUND,
    message: "network nowhere not found",
  });
  t.deepEqual(await refusalOf(() => attach("closed")), {
    code: Status.PERMISSION_DENIED,
    message: "network closed not manually attachable",
  });
  t.deepEqual(await refusalOf(() => detach("")), { code: Status.INVALID_ARGUMENT, message: "invalid argument" });
  t.is(
    (await refusalOf(() => handlers.AttachNetwork(AttachNetworkRequest.create(), worker)))?.code,
    Status.INVALID_ARGUMENT,
  );
  t.is(
    (
      await refusalOf(() =>
        handlers.AttachNetwork(AttachNetworkRequest.create(), call({ identity: null, local: true })),
      )
    )?.code,
    Status.PERMISSION_DENIED,
  );
});
