// Secrets that only an explicit request may show: join tokens, unlock keys and the keys of roots, networks and registrations,
// searched for in every view of the cluster, of its past and of its changes.
import test from "ava";
import { connectUnix } from "../../edges/grpc/client.ts";
import {
  ControlService,
  EncryptionConfig,
  EncryptionKey,
  GetClusterRequest,
  KeyRotation,
  ListClustersRequest,
  OperatorService,
  ReadAtRequest,
  RootRotation,
  Secret,
  SecretSpec,
  UpdateClusterRequest,
  WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
  Annotations,
  AddUserRequest,
  Cluster,
  ClusterSpec,
  RootCA,
  UserRole,
  UsersService,
} from "../../proto/gen/messages.ts";
import { served } from "../support/served.ts";

const latin = new TextDecoder("latin1");

/** Every form in which a secret may be printed. */
function formsOf(secret: Uint8Array | string): readonly string[] {
  const bytes = Buffer.from(secret);
  // For a PEM only the body counts, without line breaks.
  const text = bytes.toString("latin1");
  const lines = text.includes("-----BEGIN")
    ? text.split("\n").filter((line) => line.length >= 40 && !line.includes("-----"))
    : [text];
  return [...lines, bytes.toString("hex"), bytes.toString("base64").replaceAll("=", ""), [...bytes].join(",")];
}

/** Every secret of a cluster object. */
function secretsOf({ networkBootstrapKeys, rootCa, unlockKeys }: Cluster): readonly string[] {
  const found = [
    rootCa?.joinTokens?.worker ?? "",
    rootCa?.joinTokens?.manager ?? "",
    rootCa?.caKey ?? "",
    rootCa?.rootRotation?.caKey ?? "",
    ...unlockKeys.map(({ key }) => key),
    ...networkBootstrapKeys.map(({ key }) => key),
  ];
  return found.filter(({ length }) => length > 0).flatMap(formsOf);
}

test("tokens and keys are in no answer, event, listing or history, except where they are requested", async (t) => {
  const { manager, muster, socket } = await served(t);
  const timer = setInterval(() => manager.clock.advance(1), 1);
  t.teardown(() => clearInterval(timer));
  const { seed, store } = manager;
  const present = (): Cluster => [...store.all("cluster")][0] as Cluster;
  const channel = await connectUnix(socket);
  t.teardown(() => channel.close());
  const shown: string[] = [];
  const show = (bytes: Uint8Array): void => void shown.push(latin.decode(bytes));
  const kinds = ["cluster", "secret", "node", "service", "task", "network", "config", "volume", "extension"];
  const everything = (fields: Partial<WatchRequest>): WatchRequest =>
    WatchRequest.create({
      entries: kinds.map((kind) => WatchRequest_WatchEntry.create({ kind, action: 7 as never })),
      includeOldObject: true,
      ...fields,
    });
  let events = 0;
  const watch = (request: WatchRequest): void =>
    void channel.serverStream(WatchService.methods.Watch, request, {
      onMessage: (message) => {
        events += message.events.length;
        show(WatchMessage.encode(message));
      },
      onEnd: () => undefined,
    });
  const began = store.version;
  watch(everything({}));

  const hidden = new Set(secretsOf(present()));
  const change = async (fields: Partial<UpdateClusterRequest>): Promise<void> => {
    const { id, meta, spec } = present();
    const request = UpdateClusterRequest.create({
      clusterId: id,
      clusterVersion: meta?.version ?? null,
      spec,
      ...fields,
    });
    await channel.unary(ControlService.methods.UpdateCluster, request);
    for (const secret of secretsOf(present())) hidden.add(secret);
  };
  const locked = ClusterSpec.patch(present().spec as ClusterSpec, {
    encryptionConfig: EncryptionConfig.create({ autoLockManagers: true }),
  });
  await change({ spec: locked });
  await change({
    rotation: KeyRotation.create({ workerJoinToken: true, managerJoinToken: true, managerUnlockKey: true }),
  });
  const { rootCa } = present();
  const rotation = RootRotation.create({
    caCert: rootCa?.caCert ?? new Uint8Array(),
    caKey: Buffer.from("canary-next-key"),
  });
  seed(
    "cluster",
    Cluster.patch(present(), {
      rootCa: RootCA.patch(rootCa as RootCA, { rootRotation: rotation }),
      networkBootstrapKeys: [
        EncryptionKey.create({ subsystem: "networking:gossip", key: Buffer.from("canary-network-key") }),
      ],
    }),
  );
  const annotations = Annotations.create({ name: "s" });
  seed(
    "secret",
    Secret.create({ id: "s", spec: SecretSpec.create({ annotations, data: Buffer.from("canary-secret-data") }) }),
  );
  for (const secret of [...secretsOf(present()), ...formsOf("canary-secret-data")]) hidden.add(secret);
  const { registrationKey } = await channel.unary(
    UsersService.methods.AddUser,
    AddUserRequest.create({ name: "ben", role: UserRole.USER_ROLE_READ_ONLY, registers: true }),
  );
  t.is(registrationKey.length, 32);
  for (const form of formsOf(registrationKey)) hidden.add(form);
  watch(everything({ resumeFrom: { index: began } as never }));

  const at = String(store.version - 1);
  for (const command of [
    ["cluster", "inspect", "default"],
    ["cluster", "inspect", "--pretty", "default"],
    ["cluster", "inspect", "--format", "{{json .}}", "default"],
    ["cluster", "inspect", "--format", "json", "default"],
    ["cluster", "inspect", "--format", "wire", "default"],
    ["cluster", "ls", "--format", "json"],
    ["cluster", "inspect", "default", "--at", at],
    ["cluster", "ls", "--format", "json", "--at", at],
    ["token", "worker", "--at", at],
    ["swarm", "join-token", "manager", "--at", at],
    ["swarm", "unlock-key", "--at", at],
    ["history", "cluster", "default"],
    ["history", "cluster", "default", "--format", "json"],
    ["history", "secret", "s", "--format", "json"],
    ["secret", "inspect", "s"],
    ["secret", "inspect", "s", "--at", at],
    ["user", "ls"],
    ["user", "ls", "--format", "json"],
    ["user", "ls", "--format", "{{json .}}"],
    ["user", "disable", "ben"],
    ["info"],
    ["why", "default"],
  ]) {
    const { lines, remarks } = await muster(...command);
    t.true(lines.length + remarks.length > 0, command.join(" "));
    shown.push(...lines.map((line) => `${command.join(" ")}: ${line}`), ...remarks);
  }
  for (const [method, request] of [
    [
      ControlService.methods.GetCluster,
      GetClusterRequest.encode(GetClusterRequest.create({ clusterId: present().id })),
    ],
    [ControlService.methods.ListClusters, ListClustersRequest.encode(ListClustersRequest.create())],
  ] as const) {
    const question = ReadAtRequest.create({ version: store.version, method: method.path, request });
    const { response } = await channel.unary(OperatorService.methods.ReadAt, question);
    t.true(response.length > 100);
    show(response);
  }

  const deadline = Date.now() + 60_000;
  while (events < 8 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 5));
  t.true(events >= 8);
  t.true(hidden.size > 30);
  for (const secret of hidden) {
    const found = shown.find((text) => text.includes(secret));
    t.is(found, undefined, secret);
  }
  // The explicit requests do return them.
  const { worker, manager: managers } = present().rootCa?.joinTokens ?? { worker: "", manager: "" };
  t.deepEqual((await muster("token", "worker")).lines, [worker]);
  t.deepEqual((await muster("token", "manager")).lines, [managers]);
});
