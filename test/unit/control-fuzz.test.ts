// Control against untrusted messages: any request is answered, or rejected with a status that says whose fault it is; no
// handler throws, and everything stored can be read again.
import test from "ava";
import fc from "fast-check";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  Annotations,
  ConfigSpec,
  ControlService,
  CreateConfigRequest,
  CreateExtensionRequest,
  CreateNetworkRequest,
  CreateResourceRequest,
  CreateSecretRequest,
  CreateServiceRequest,
  CreateVolumeRequest,
  Driver,
  NetworkSpec,
  SecretSpec,
  Task,
  TaskState,
  TaskStatus,
  VolumeAccessMode,
  VolumeAccessMode_MountVolume,
  VolumeSpec,
} from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { codecs } from "../../runtime/store/tables.ts";
import { tableNames } from "../../proto/table-names.ts";
import { arbitraryMessage } from "../support/arbitrary-message.ts";
import { spec, workerNode, world } from "../support/control.ts";
import { call } from "../support/manager.ts";

type Handler = (request: unknown, context: ReturnType<typeof call>) => unknown;

/** A cluster with one object of each kind, and the strings that mean something in it: ids and names. */
async function populated() {
  const made = world();
  const { control, env, manager, store } = made;
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const annotations = Annotations.create({ name: "thing", labels: { a: "b" } });
  const data = Uint8Array.of(1);
  await control.CreateService(CreateServiceRequest.create({ spec: spec("thing") }), call());
  await control.CreateNetwork(CreateNetworkRequest.create({ spec: NetworkSpec.create({ annotations }) }), call());
  await control.CreateSecret(CreateSecretRequest.create({ spec: SecretSpec.create({ annotations, data }) }), call());
  await control.CreateConfig(CreateConfigRequest.create({ spec: ConfigSpec.create({ annotations, data }) }), call());
  await control.CreateExtension(CreateExtensionRequest.create({ annotations }), call());
  await control.CreateResource(CreateResourceRequest.create({ annotations, kind: "thing" }), call());
  const accessMode = VolumeAccessMode.create({ mount: VolumeAccessMode_MountVolume.create({}) });
  const volume = VolumeSpec.create({ annotations, accessMode, driver: Driver.create({ name: "csi" }) });
  await control.CreateVolume(CreateVolumeRequest.create({ spec: volume }), call());
  const [service] = [...store.all("service")];
  manager.seed("node", workerNode("node1"));
  manager.seed(
    "task",
    Task.create({
      id: "task1",
      nodeId: "node1",
      serviceId: service?.id ?? "",
      slot: 1,
      status: TaskStatus.create({ state: TaskState.RUNNING }),
      desiredState: TaskState.RUNNING,
    }),
  );
  /** An accepted request of each method, or one that only lacks a version: arbitrary fields are laid over it. */
  const accepted = (name: string): object => {
    const [, verb = "", noun = ""] = /^([A-Z][a-z]+)(\w+)$/.exec(name) ?? [];
    const field = noun.charAt(0).toLowerCase() + noun.slice(1);
    if (verb === "List" || !(tableNames as readonly string[]).includes(field)) return {};
    const [object] = [...store.all(field as (typeof tableNames)[number])] as unknown as [Record<string, unknown>?];
    if (object === undefined) return {};
    const {
      meta,
      spec: stored,
      annotations: own,
    } = object as {
      meta: { version: unknown };
      spec?: { annotations?: { name: string } };
      annotations?: unknown;
    };
    if (verb === "Create") return { spec: stored, annotations: own, kind: "thing" };
    const named = { [`${field}Id`]: object["id"] };
    return verb === "Update" ? { ...named, [`${field}Version`]: meta.version, spec: stored, annotations: own } : named;
  };
  const ids = tableNames.flatMap((table) => [...store.all(table)].map(({ id }) => id));
  return {
    ...made,
    accepted,
    texts: [...ids, "thing", "default", "overlay", "container", "golang", "bb:1", "10.9.0.0/24"],
  };
}

/** Statuses that blame the caller. */
const answers = new Set<number>([
  Status.INVALID_ARGUMENT,
  Status.NOT_FOUND,
  Status.ALREADY_EXISTS,
  Status.PERMISSION_DENIED,
  Status.FAILED_PRECONDITION,
  Status.ABORTED,
  Status.UNIMPLEMENTED,
  Status.RESOURCE_EXHAUSTED,
]);

const methods = ControlService.methods as unknown as Readonly<Record<string, MethodDescriptor<unknown, unknown>>>;

/** Requests for each method. RUNS=1000 searches further. */
const numRuns = Number(process.env["RUNS"] ?? 60);

for (const [name, method] of Object.entries(methods)) {
  test(`${name} answers any request`, async (t) => {
    const { accepted, control, store, texts } = await populated();
    const handler = (control as unknown as Readonly<Record<string, Handler>>)[name] as Handler;
    await fc.assert(
      fc.asyncProperty(
        arbitraryMessage(method.request.typeName, { texts, depth: 5 }),
        fc.boolean(),
        async (bytes, isOnTop) => {
          // Concatenated messages are one message: the later fields win.
          const base = isOnTop ? method.request.encode(method.request.create(accepted(name))) : new Uint8Array();
          try {
            const response = await handler(method.request.decode(Buffer.concat([base, bytes])), call());
            method.response.decode(method.response.encode(response));
          } catch (error) {
            if (!(error instanceof RpcError)) throw error;
            if (!answers.has(error.code)) throw new Error(`status ${error.code}: ${error.message}`, { cause: error });
            if (
              error.message === "" ||
              /undefined|\[object|NaN\b|Cannot read/.test(error.message.replaceAll(/'[^']*'/g, ""))
            )
              throw new Error(`a message that reveals an internal error: ${error.message}`);
          }
        },
      ),
      { numRuns },
    );
    for (const table of tableNames) {
      for (const object of store.all(table)) codecs[table].decode(codecs[table].encode(object as never) as never);
    }
    t.pass();
  });
}

/** Every filter, empty. */
const withNothing = {
  names: [],
  idPrefixes: [],
  namePrefixes: [],
  labels: {},
  nodeLabels: {},
  memberships: [],
  roles: [],
  serviceIds: [],
  nodeIds: [],
  desiredStates: [],
  runtimes: [],
  groups: [],
  drivers: [],
  upToDate: false,
  kind: "",
};

/** Filters by name, prefix and id are alternatives: adding one finds more. */
const alternatives = new Set(["ListSecrets", "ListConfigs", "ListResources"]);

function isWithin(part: ReadonlySet<string>, whole: ReadonlySet<string>): boolean {
  return [...part].every((id) => whole.has(id));
}

for (const name of Object.keys(methods).filter((each) => each.startsWith("List") && each !== "ListServiceStatuses")) {
  test(`${name} finds no more with an additional filter, and no less with an additional value in a filter`, async (t) => {
    const { control, texts } = await populated();
    const method = methods[name] as MethodDescriptor<unknown, unknown>;
    const handler = (control as unknown as Readonly<Record<string, Handler>>)[name] as Handler;
    const found = (filters: object | null): ReadonlySet<string> => {
      const [objects = []] = Object.values(handler(method.request.create({ filters }), call()) as object);
      return new Set((objects as readonly { readonly id: string }[]).map(({ id }) => id));
    };
    const all = found(null);
    t.true(all.size > 0);
    const lists = ["names", "idPrefixes", "namePrefixes"] as const;
    const words = fc.array(fc.constantFrom("", "th", ...texts), { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(fc.record({ names: words, idPrefixes: words, namePrefixes: words }), (filters) => {
        const whole = found({ ...withNothing, ...filters });
        for (const list of lists) {
          const [, ...fewer] = filters[list];
          const without = found({ ...withNothing, ...filters, [list]: [] });
          const narrower = found({ ...withNothing, ...filters, [list]: fewer });
          if (!alternatives.has(name)) t.true(isWithin(whole, without), `${list} left out`);
          if (fewer.length > 0) t.true(isWithin(narrower, whole), `a value of ${list} left out`);
          t.true(isWithin(without, all));
        }
      }),
      { numRuns: 40 },
    );
  });
}
