/**
 * A storage system with its plugin, in memory: the truth about volumes for tests. It obeys every call and lists those that
 * should not have been made. Around each call a `Weather` may wait, fail, or lose the answer.
 */
import {
  CsiControllerGetCapabilitiesResponse,
  CsiControllerPublishVolumeResponse,
  CsiControllerServiceCapability,
  CsiControllerServiceCapability_RPC,
  CsiControllerServiceCapability_RPC_Type as ControllerAbility,
  CsiControllerUnpublishVolumeResponse,
  CsiCreateVolumeResponse,
  CsiDeleteVolumeResponse,
  CsiGetPluginCapabilitiesResponse,
  CsiGetPluginInfoResponse,
  CsiNodeGetCapabilitiesResponse,
  CsiNodeGetInfoResponse,
  CsiNodePublishVolumeResponse,
  CsiNodeServiceCapability,
  CsiNodeServiceCapability_RPC,
  CsiNodeServiceCapability_RPC_Type as NodeAbility,
  CsiNodeStageVolumeResponse,
  CsiNodeUnpublishVolumeResponse,
  CsiNodeUnstageVolumeResponse,
  CsiPluginCapability,
  CsiPluginCapability_Service,
  CsiPluginCapability_Service_Type as PluginAbility,
  CsiProbeResponse,
  CsiTopology,
  CsiVolume,
  CsiVolumeCapability_AccessMode_Mode as Mode,
  type CsiControllerService,
  type CsiCreateVolumeRequest,
  type CsiIdentityService,
  type CsiNodeService,
} from "../../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers } from "../../runtime/ports/rpc.ts";

interface StoredVolume {
  readonly id: string;
  readonly name: string;
  readonly isForOneNode: boolean;
  readonly capacityBytes: number;
  readonly zone: string | null;
  /** Nodes that it is attached to. */
  readonly attached: Set<string>;
  /** By node: where it is staged ("" if nowhere) and the paths at which it is mounted. */
  readonly mounted: Map<string, { staged: string; readonly paths: Set<string> }>;
}

/** Faults of a call: `before` and `after` the work may wait or throw RpcError; if `after` throws, the work is done. */
interface Weather {
  before(method: string, request: unknown): Promise<void> | void;
  after(method: string, request: unknown): Promise<void> | void;
}

export interface StorageOptions {
  readonly weather?: Weather;
  /** Required for calls of every volume; calls with a wrong or missing one are rejected. */
  readonly secrets?: Readonly<Record<string, string>>;
  readonly bytesMax?: number;
  /** Performs the actual mounts and unmounts of these paths. */
  readonly mount?: (path: string, volume: StoredVolume) => void;
  readonly unmount?: (path: string) => void;
}

const oneNodeModes: ReadonlySet<number> = new Set([Mode.SINGLE_NODE_WRITER, Mode.SINGLE_NODE_READER_ONLY]);

export class Storage {
  readonly volumes = new Map<string, StoredVolume>();
  /** Requests that nobody may make. */
  readonly flaws: string[] = [];
  /** How often each method did its work. */
  readonly done = new Map<string, number>();
  weather: Weather;
  isReady = true;
  readonly #options: StorageOptions;
  readonly #busy = new Set<string>();

  constructor(options: StorageOptions = {}) {
    this.#options = options;
    this.weather = options.weather ?? { before: () => undefined, after: () => undefined };
  }

  byName(name: string): StoredVolume | undefined {
    return this.volumes.get(`vol-${name}`);
  }

  identity(): ServiceHandlers<typeof CsiIdentityService> {
    return {
      Probe: () => CsiProbeResponse.create({ ready: { value: this.isReady } }),
      GetPluginInfo: () => CsiGetPluginInfoResponse.create({ name: "dev.muster.storage", vendorVersion: "1" }),
      GetPluginCapabilities: () =>
        CsiGetPluginCapabilitiesResponse.create({
          capabilities: [PluginAbility.CONTROLLER_SERVICE, PluginAbility.VOLUME_ACCESSIBILITY_CONSTRAINTS].map((type) =>
            CsiPluginCapability.create({ service: CsiPluginCapability_Service.create({ type }) }),
          ),
        }),
    };
  }

  controller(): ServiceHandlers<typeof CsiControllerService> {
    return {
      ControllerGetCapabilities: () =>
        CsiControllerGetCapabilitiesResponse.create({
          capabilities: [ControllerAbility.CREATE_DELETE_VOLUME, ControllerAbility.PUBLISH_UNPUBLISH_VOLUME].map(
            (type) =>
              CsiControllerServiceCapability.create({ rpc: CsiControllerServiceCapability_RPC.create({ type }) }),
          ),
        }),
      CreateVolume: (request) =>
        this.#do("CreateVolume", request, () => {
          this.#checkSecrets(request.secrets);
          return CsiCreateVolumeResponse.create({ volume: this.#create(request) });
        }),
      DeleteVolume: (request) =>
        this.#do("DeleteVolume", request, () => {
          this.#checkSecrets(request.secrets);
          const volume = this.volumes.get(request.volumeId);
          if (volume !== undefined && volume.attached.size > 0) {
            this.flaws.push(`${volume.name} is deleted while it is attached to ${[...volume.attached].join(", ")}`);
            throw new RpcError(Status.FAILED_PRECONDITION, "the volume is in use");
          }
          this.volumes.delete(request.volumeId);
          return CsiDeleteVolumeResponse.create();
        }),
      ControllerPublishVolume: (request) =>
        this.#do("ControllerPublishVolume", request, () => {
          this.#checkSecrets(request.secrets);
          const volume = this.#volume(request.volumeId);
          const others = [...volume.attached].filter((node) => node !== request.nodeId);
          if (volume.isForOneNode && others.length > 0)
            this.flaws.push(`${volume.name} is attached to ${request.nodeId} while ${others.join(", ")} has it`);
          volume.attached.add(request.nodeId);
          return CsiControllerPublishVolumeResponse.create({ publishContext: { device: `/dev/${request.volumeId}` } });
        }),
      ControllerUnpublishVolume: (request) =>
        this.#do("ControllerUnpublishVolume", request, () => {
          this.#checkSecrets(request.secrets);
          const volume = this.#volume(request.volumeId);
          const nodes = request.nodeId === "" ? [...volume.attached] : [request.nodeId];
          for (const node of nodes) {
            if (volume.mounted.has(node))
              this.flaws.push(`${volume.name} is detached from ${node}, which has it mounted`);
            volume.attached.delete(node);
          }
          return CsiControllerUnpublishVolumeResponse.create();
        }),
    };
  }

  /** The plugin on one node, by the plugin's name for the node. */
  node(
    nodeId: string,
    facts: { readonly zone?: string; readonly maxVolumes?: number; readonly stages?: boolean } = {},
  ): ServiceHandlers<typeof CsiNodeService> {
    const isStaging = facts.stages ?? true;
    const place = (volume: StoredVolume): { staged: string; readonly paths: Set<string> } => {
      const known = volume.mounted.get(nodeId) ?? { staged: "", paths: new Set<string>() };
      volume.mounted.set(nodeId, known);
      return known;
    };
    const settle = (volume: StoredVolume): void => {
      const known = volume.mounted.get(nodeId);
      if (known !== undefined && known.staged === "" && known.paths.size === 0) volume.mounted.delete(nodeId);
    };
    return {
      NodeGetCapabilities: () =>
        CsiNodeGetCapabilitiesResponse.create({
          capabilities: isStaging
            ? [
                CsiNodeServiceCapability.create({
                  rpc: CsiNodeServiceCapability_RPC.create({ type: NodeAbility.STAGE_UNSTAGE_VOLUME }),
                }),
              ]
            : [],
        }),
      NodeGetInfo: () =>
        CsiNodeGetInfoResponse.create({
          nodeId,
          maxVolumesPerNode: facts.maxVolumes ?? 0,
          accessibleTopology: facts.zone === undefined ? null : CsiTopology.create({ segments: { zone: facts.zone } }),
        }),
      NodeStageVolume: (request) =>
        this.#do("NodeStageVolume", { ...request, nodeId }, () => {
          const volume = this.#attachedVolume(request.volumeId, nodeId, request.publishContext);
          place(volume).staged = request.stagingTargetPath;
          return CsiNodeStageVolumeResponse.create();
        }),
      NodePublishVolume: (request) =>
        this.#do("NodePublishVolume", { ...request, nodeId }, () => {
          const volume = this.#attachedVolume(request.volumeId, nodeId, request.publishContext);
          const known = place(volume);
          if (isStaging && known.staged !== request.stagingTargetPath)
            throw new RpcError(Status.FAILED_PRECONDITION, "the volume is not staged there");
          if (!known.paths.has(request.targetPath)) this.#options.mount?.(request.targetPath, volume);
          known.paths.add(request.targetPath);
          return CsiNodePublishVolumeResponse.create();
        }),
      NodeUnpublishVolume: (request) =>
        this.#do("NodeUnpublishVolume", { ...request, nodeId }, () => {
          const volume = this.#volume(request.volumeId);
          if (volume.mounted.get(nodeId)?.paths.delete(request.targetPath) === true)
            this.#options.unmount?.(request.targetPath);
          settle(volume);
          return CsiNodeUnpublishVolumeResponse.create();
        }),
      NodeUnstageVolume: (request) =>
        this.#do("NodeUnstageVolume", { ...request, nodeId }, () => {
          const volume = this.#volume(request.volumeId);
          const known = volume.mounted.get(nodeId);
          if (known !== undefined && known.paths.size > 0)
            this.flaws.push(`${volume.name} is unstaged on ${nodeId} while it is mounted`);
          if (known !== undefined) known.staged = "";
          settle(volume);
          return CsiNodeUnstageVolumeResponse.create();
        }),
    };
  }

  /** A node's machine went down: nothing is mounted there any more. */
  forgetMounts(nodeId: string): void {
    for (const volume of this.volumes.values()) volume.mounted.delete(nodeId);
  }

  /**
   * One call at a time for a volume, on a node or at the storage itself: others must retry later, as the interface specifies.
   */
  async #do<Response>(method: string, request: unknown, work: () => Response): Promise<Response> {
    const { name, nodeId, volumeId } = request as { name?: string; nodeId?: string; volumeId?: string };
    const subject = `${method.startsWith("Node") ? "node " : ""}${nodeId ?? ""}/${volumeId ?? `vol-${name}`}`;
    if (this.#busy.has(subject)) throw new RpcError(Status.ABORTED, "another call for this volume is in progress");
    this.#busy.add(subject);
    let response: Response;
    try {
      await this.weather.before(method, request);
      response = work();
    } finally {
      this.#busy.delete(subject);
    }
    this.done.set(method, (this.done.get(method) ?? 0) + 1);
    await this.weather.after(method, request);
    return response;
  }

  #create(request: CsiCreateVolumeRequest): CsiVolume {
    const { capacityRange, name } = request;
    const required = capacityRange?.requiredBytes ?? 0;
    if (required > (this.#options.bytesMax ?? Infinity))
      throw new RpcError(Status.OUT_OF_RANGE, `there is no room for ${required} bytes`);
    const mode = request.volumeCapabilities[0]?.accessMode?.mode ?? 0;
    const isForOneNode = oneNodeModes.has(mode);
    const id = `vol-${name}`;
    const known = this.volumes.get(id);
    if (known !== undefined && known.isForOneNode !== isForOneNode)
      throw new RpcError(Status.ALREADY_EXISTS, "there is another volume of that name");
    const zone = request.accessibilityRequirements?.requisite[0]?.segments["zone"] ?? null;
    const volume =
      known ??
      ({
        id,
        name,
        isForOneNode,
        capacityBytes: required,
        zone,
        attached: new Set<string>(),
        mounted: new Map(),
      } satisfies StoredVolume);
    this.volumes.set(id, volume);
    return CsiVolume.create({
      volumeId: id,
      capacityBytes: volume.capacityBytes,
      volumeContext: { made: "by storage", ...request.parameters },
      accessibleTopology: volume.zone === null ? [] : [CsiTopology.create({ segments: { zone: volume.zone } })],
    });
  }

  #volume(id: string): StoredVolume {
    const volume = this.volumes.get(id);
    if (volume === undefined) throw new RpcError(Status.NOT_FOUND, `no volume is called ${id}`);
    return volume;
  }

  #attachedVolume(id: string, nodeId: string, context: Readonly<Record<string, string>>): StoredVolume {
    const volume = this.#volume(id);
    if (!volume.attached.has(nodeId)) {
      this.flaws.push(`${volume.name} is mounted on ${nodeId}, to which it is not attached`);
      throw new RpcError(Status.FAILED_PRECONDITION, "the volume is not attached to this node");
    }
    if (context["device"] !== `/dev/${id}`) this.flaws.push(`${nodeId} did not get the publish context of ${id}`);
    return volume;
  }

  #checkSecrets(given: Readonly<Record<string, string>>): void {
    for (const [key, value] of Object.entries(this.#options.secrets ?? {})) {
      // As careless plugins do: the message quotes a secret.
      if (given[key] !== value) throw new RpcError(Status.UNAUTHENTICATED, `wrong ${key}: ${given[key] ?? "none"}`);
    }
  }
}
