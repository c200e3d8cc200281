/**
 * Everything that a cluster keeps secret, and everything that its users write, has a canary in it; the feed of every actor of
 * every process is recorded from its first step. No canary may be in it.
 */
import test from "ava";
import { createProcessFeed } from "../../actors/inspection/process-feed.ts";
import {
  ActorFeed,
  ActorSelection,
  Annotations,
  CAService,
  ClusterSpec,
  ConfigSpec,
  ControlService,
  CreateConfigRequest,
  CreateNetworkRequest,
  CreateSecretRequest,
  Driver,
  EncryptionConfig,
  GetUnlockKeyRequest,
  KeyRotation,
  ListClustersRequest,
  ListNodesRequest,
  ListTasksRequest,
  LogSubscriptionOptions,
  LogsService,
  LogSelector,
  NetworkSpec,
  NodeSpec,
  ResourceReference,
  ResourceType,
  SecretSpec,
  SubscribeLogsRequest,
  TaskAccessService,
  TaskCallRequest,
  TaskExec,
  UpdateClusterRequest,
  UpdateNodeRequest,
} from "../../proto/gen/messages.ts";
import { refusedPayload } from "../../simulation/workloads/rollout.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService, simTask } from "../../simulation/workloads/services.ts";
import { followHosts } from "../../simulation/transitions.ts";

const canary = "CANARY";
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
/** Also what the cluster makes itself: tokens, unlock keys, private keys, certificates. */
const forbidden = /CANARY|SWMTKN-|SWMKEY-|-----BEGIN|SIMULATED/;
/** Charts whose actors this cluster runs; a canary test of fewer would show less. */
const chartsMin = 25;

interface Heard {
  readonly text: string;
  readonly machines: ReadonlySet<string>;
  readonly steps: number;
}

async function heardIn(world: ScriptedWorld, act: () => Promise<void>): Promise<Heard> {
  const { clock, trace } = world.scene.simulation;
  const parts: string[] = [];
  const machines = new Set<string>();
  let steps = 0;
  const log = {
    debug() {},
    info() {},
    warn() {},
    error: (fields: object, text: string) => world.scene.fail(`${text} ${JSON.stringify(fields)}`),
  };
  followHosts(trace, (host, who) => {
    const feed = createProcessFeed({ host, clock, telemetry: { log }, process: who, hostname: who });
    feed.listen(ActorSelection.create(), {
      ready: () => true,
      onFeed(message) {
        parts.push(JSON.stringify(ActorFeed.toJson(message)));
        for (const { machine } of [...message.steps, ...(message.snapshot?.actors ?? [])]) machines.add(machine);
        steps += message.steps.length;
      },
    });
  });
  await act();
  // The last batch.
  await world.pass(200);
  return { text: parts.join("\n"), machines, steps };
}

const labels = { [`${canary}.label`]: canary };
const named = (name: string): Annotations => Annotations.create({ name, labels });

test("no secret, token, key or data of a user is in the feed of any actor", async (t) => {
  t.timeout(240_000);
  const world = new ScriptedWorld({
    seed: 17,
    managers: 2,
    agents: 2,
    tasks: { ...steadyTasks, failure: 0.5, lifeMsMax: 2_000, says: `${canary} said by a task and its driver` },
  });
  const { CreateSecret, CreateConfig, CreateNetwork, UpdateNode, UpdateCluster, ListClusters, ListNodes, ListTasks } =
    ControlService.methods;
  const timeoutMs = 30_000;
  const secretsOfCluster: string[] = [];
  const { text, machines, steps } = await heardIn(world, async () => {
    await world.found();
    const channel = world.dial();
    const ask = <Answer>(what: string, call: Promise<Answer>): Promise<Answer> => world.answered(what, call);
    const secretSpec = SecretSpec.create({ annotations: named("secret"), data: bytes(canary) });
    const configSpec = ConfigSpec.create({ annotations: named("config"), data: bytes(canary) });
    const networkSpec = NetworkSpec.create({
      annotations: named("network"),
      driverConfig: Driver.create({ name: "overlay", options: { option: canary } }),
    });
    const { secret } = await ask(
      "a secret",
      channel.unary(CreateSecret, CreateSecretRequest.create({ spec: secretSpec }), { timeoutMs }),
    );
    const { config } = await ask(
      "a config",
      channel.unary(CreateConfig, CreateConfigRequest.create({ spec: configSpec }), { timeoutMs }),
    );
    await ask(
      "a network",
      channel.unary(CreateNetwork, CreateNetworkRequest.create({ spec: networkSpec }), { timeoutMs }),
    );
    const resourceReferences = [
      ResourceReference.create({ resourceId: secret?.id ?? "", resourceType: ResourceType.SECRET }),
      ResourceReference.create({ resourceId: config?.id ?? "", resourceType: ResourceType.CONFIG }),
    ];
    /** The payload of a task has its command, environment and driver config. */
    const payload = (kind: number): Uint8Array => new Uint8Array([kind, ...bytes(canary)]);
    const logDriver = Driver.create({ name: "json-file", options: { "max-size": "1k", tag: canary } });
    const task = (kind: number) => ({ generic: simTask(payload(kind)), resourceReferences, logDriver });
    const serviceId = await world.create(simService({ name: "good", labels, replicas: 4, task: task(1) }));
    await world.create(simService({ name: "bad", labels, replicas: 2, task: task(refusedPayload) }));
    await world.pass(5_000);
    await world.update(
      serviceId,
      simService({ name: "good", labels: { ...labels, more: canary }, replicas: 3, task: task(9) }),
    );

    const { nodes } = await ask("the nodes", channel.unary(ListNodes, ListNodesRequest.create(), { timeoutMs }));
    const node = nodes.find(({ description }) => description?.hostname === "a1");
    const nodeUpdate = UpdateNodeRequest.create({
      nodeId: node?.id ?? "",
      nodeVersion: node?.meta?.version ?? null,
      spec: NodeSpec.patch(node?.spec ?? NodeSpec.create(), { annotations: named("") }),
    });
    await ask("a labelled node", channel.unary(UpdateNode, nodeUpdate, { timeoutMs }));

    const { tasks } = await ask("the tasks", channel.unary(ListTasks, ListTasksRequest.create(), { timeoutMs }));
    for (const { id } of tasks)
      channel.serverStream(
        TaskAccessService.methods.Call,
        TaskCallRequest.create({ taskId: id, exec: TaskExec.create({ command: [canary] }) }),
        { onMessage() {}, onEnd() {} },
      );
    const selector = LogSelector.create({ serviceIds: [serviceId] });
    const options = LogSubscriptionOptions.create({ follow: true });
    let lines = 0;
    channel.serverStream(LogsService.methods.SubscribeLogs, SubscribeLogsRequest.create({ selector, options }), {
      onMessage: ({ messages }) => void (lines += messages.length),
      onEnd() {},
    });
    await world.pass(5_000);
    t.true(lines > 0, "logs flowed");

    const { clusters } = await ask(
      "the cluster",
      channel.unary(ListClusters, ListClustersRequest.create(), { timeoutMs }),
    );
    const [cluster] = clusters;
    const lock = UpdateClusterRequest.create({
      clusterId: cluster?.id ?? "",
      clusterVersion: cluster?.meta?.version ?? null,
      spec: ClusterSpec.patch(cluster?.spec ?? ClusterSpec.create(), {
        encryptionConfig: EncryptionConfig.create({ autoLockManagers: true }),
      }),
      rotation: KeyRotation.create({ workerJoinToken: true }),
    });
    await ask("the lock", channel.unary(UpdateCluster, lock, { timeoutMs }));
    const { unlockKey } = await ask(
      "the unlock key",
      channel.unary(CAService.methods.GetUnlockKey, GetUnlockKeyRequest.create(), { timeoutMs }),
    );
    secretsOfCluster.push(Buffer.from(unlockKey).toString("base64"), Buffer.from(unlockKey).toString("hex"));
    secretsOfCluster.push(world.managers.joinToken());
    await world.pass(15_000);
    // A restarted agent finds its tasks; a manager that is killed leaves its nodes to the other.
    for (const { name } of world.agents) world.cut(name, "m1");
    await world.pass(10_000);
    for (const { name } of world.agents) world.heal(name, "m1");
    await world.pass(10_000);
  });
  t.true(steps > 1_000, `${steps} steps`);
  t.true(machines.size >= chartsMin, [...machines].toSorted().join(" "));
  const found = forbidden.exec(text);
  t.is(found, null, found === null ? "" : text.slice(Math.max(0, found.index - 400), found.index + 100));
  for (const secret of secretsOfCluster)
    t.false(secret === "" || text.includes(secret), "a key or token of the cluster");
});
