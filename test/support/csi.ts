/** Storage plugins in process, without a socket, on the test's own clock, and their volumes and nodes. */
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import type { Codec, MethodDescriptor } from "../../proto/codec.ts";
import {
  Annotations,
  CsiControllerService,
  CsiIdentityService,
  CsiNodeService,
  Driver,
  Node,
  NodeCSIInfo,
  NodeDescription,
  Topology,
  Volume,
  VolumeAccessMode,
  VolumeAccessMode_MountVolume,
  VolumeAccessMode_Scope,
  VolumeAccessMode_Sharing,
  VolumeSpec,
  type VolumeSecret,
} from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import { readyNode } from "./scheduling.ts";
import type { Storage } from "../../simulation/nodes/storage-model.ts";

/** The only plugin of these tests unless stated otherwise. */
export const pluginName = "fast";

type Handler = (request: unknown, call: never) => unknown;

/** A link to a plugin that is always available; `break` cuts its calls off. */
export class PluginLink implements RpcChannel {
  readonly #clock: Clock;
  readonly #handlers = new Map<string, Handler>();
  readonly #listeners: (() => void)[] = [];
  #isOpen = true;

  constructor(clock: Clock, storage: Storage, nodeId: string | null, facts: { readonly zone?: string } = {}) {
    this.#clock = clock;
    this.#serve(CsiIdentityService, storage.identity());
    if (nodeId === null) this.#serve(CsiControllerService, storage.controller());
    else this.#serve(CsiNodeService, storage.node(nodeId, facts));
  }

  #serve(service: { readonly methods: object }, handlers: object): void {
    const table = handlers as Readonly<Record<string, Handler>>;
    for (const [name, method] of Object.entries(service.methods as Readonly<Record<string, { path: string }>>))
      this.#handlers.set(method.path, table[name] as Handler);
  }

  unary<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    options: { timeoutMs?: number } = {},
  ): Promise<Response> {
    const handler = this.#handlers.get(method.path);
    if (!this.#isOpen) return Promise.reject(new RpcError(Status.UNAVAILABLE, "the link is cut"));
    if (handler === undefined) return Promise.reject(new RpcError(Status.UNIMPLEMENTED, method.path));
    return new Promise((resolve, reject) => {
      const timer = this.#clock.setTimeout(
        () => reject(new RpcError(Status.DEADLINE_EXCEEDED, `no answer within ${options.timeoutMs} ms`)),
        options.timeoutMs ?? 1e9,
      );
      this.#listeners.push(() => reject(new RpcError(Status.UNAVAILABLE, "the link was cut")));
      Promise.resolve(copy(method.request, request))
        .then((sent) => handler(sent, undefined as never))
        .then((answer) => resolve(copy(method.response, answer as Response)), reject)
        .finally(() => this.#clock.clearTimeout(timer));
    });
  }

  serverStream(): never {
    throw new Error("storage plugins have no streams");
  }

  clientStream(): never {
    throw new Error("storage plugins have no streams");
  }

  close(): void {
    this.#isOpen = false;
  }

  onClosed(listener: () => void): void {
    this.#listeners.push(listener);
  }

  break(): void {
    this.#isOpen = false;
    for (const listener of this.#listeners.splice(0)) listener();
  }
}

function copy<Message>(codec: Codec<Message>, message: Message): Message {
  return codec.decode(codec.encode(message));
}

interface TestSockets extends CsiSockets {
  /** Makes plugins appear and disappear. */
  list(...names: string[]): void;
  /** While true, dials get no answer. */
  isDown: boolean;
  /** All links created, newest last. */
  readonly links: PluginLink[];
}

export function socketsOf(link: () => PluginLink): TestSockets {
  const listeners = new Set<() => void>();
  let names: readonly string[] = [pluginName];
  const sockets: TestSockets = {
    isDown: false,
    links: [],
    names: () => names,
    onChange(listener) {
      listeners.add(listener);
      return { unsubscribe: () => listeners.delete(listener) };
    },
    list(...next) {
      names = next;
      for (const listener of listeners) listener();
    },
    dial() {
      if (sockets.isDown) return Promise.reject(new RpcError(Status.UNAVAILABLE, "nobody listens"));
      const made = link();
      sockets.links.push(made);
      return Promise.resolve(made);
    },
  };
  return sockets;
}

interface VolumeTraits {
  readonly driver?: string;
  readonly group?: string;
  readonly scope?: VolumeAccessMode_Scope;
  readonly sharing?: VolumeAccessMode_Sharing;
  readonly secrets?: readonly VolumeSecret[];
  readonly labels?: Readonly<Record<string, string>>;
}

export function volumeSpec(name: string, traits: VolumeTraits = {}): VolumeSpec {
  return VolumeSpec.create({
    annotations: Annotations.create({ name, labels: traits.labels ?? {} }),
    group: traits.group ?? "",
    driver: Driver.create({ name: traits.driver ?? pluginName }),
    secrets: traits.secrets ?? [],
    accessMode: VolumeAccessMode.create({
      scope: traits.scope ?? VolumeAccessMode_Scope.SINGLE_NODE,
      sharing: traits.sharing ?? VolumeAccessMode_Sharing.ALL,
      mount: VolumeAccessMode_MountVolume.create(),
    }),
  });
}

export function volume(id: string, traits: VolumeTraits & Partial<Volume> = {}): Volume {
  const { publishStatus = [], volumeInfo = null, pendingDelete = false } = traits;
  return Volume.create({ id, spec: volumeSpec(id, traits), publishStatus, volumeInfo, pendingDelete });
}

/** A node with the plugin, which calls the node `at-<id>`. */
export function storageNode(id: string, zone = ""): Node {
  const node = readyNode(id);
  const csiInfo = [
    NodeCSIInfo.create({
      pluginName,
      nodeId: `at-${id}`,
      accessibleTopology: zone === "" ? null : Topology.create({ segments: { zone } }),
    }),
  ];
  return Node.patch(node, {
    description: NodeDescription.patch(node.description ?? NodeDescription.create(), { csiInfo }),
  });
}
