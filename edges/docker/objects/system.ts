/** `/_ping`, `/version`, `/info` and other requests about the whole of an engine: here, the cluster. */
import { arch, cpus, hostname, release, totalmem } from "node:os";
import {
  ControlService,
  ListNodesRequest,
  NodeRole,
  OperatorService,
  StatusRequest,
  type Node,
} from "../../../proto/gen/messages.ts";
import { clusterObject } from "../../../lib/docker-objects/cluster.ts";
import type { DockerObject } from "../../../lib/docker-objects/values.ts";
import { version as ownVersion } from "../../../lib/version.ts";
import { isOlder, newestVersion, oldestVersion } from "../api-version.ts";
import { findCluster } from "../find.ts";
import { badRequest } from "../failure.ts";
import { isSet } from "../go-text.ts";
import { filtersOf, ok, type DockerRequest, type Handler } from "../request.ts";
import { allContainers, containerCounts } from "./containers.ts";

/** Go's name of the processor. */
const goArch: string = ({ x64: "amd64", arm: "arm" } as Readonly<Record<string, string>>)[arch()] ?? arch();
const unameArch: string = ({ x64: "x86_64", arm64: "aarch64" } as Readonly<Record<string, string>>)[arch()] ?? arch();

export const ping: Handler = ({ message, response }) => {
  response.writeHead(200, {
    "content-type": "text/plain; charset=utf-8",
    "cache-control": "no-cache, no-store, must-revalidate",
    pragma: "no-cache",
    swarm: "active/manager",
    // BuildKit and the classic builder are both absent; clients then do not ask for a build session.
    "builder-version": "1",
  });
  response.end(message.method === "HEAD" ? undefined : "OK");
  return null;
};

export const showVersion: Handler = () =>
  ok({
    Platform: { Name: "Muster" },
    Components: [
      {
        Name: "Engine",
        Version: ownVersion,
        Details: {
          ApiVersion: newestVersion,
          Arch: goArch,
          Experimental: "false",
          KernelVersion: release(),
          MinAPIVersion: oldestVersion,
          Os: "linux",
        },
      },
    ],
    Version: ownVersion,
    ApiVersion: newestVersion,
    MinAPIVersion: oldestVersion,
    GitCommit: "",
    GoVersion: "",
    Os: "linux",
    Arch: goArch,
    KernelVersion: release(),
    BuildTime: "",
  });

function isManager({ managerStatus, role }: Node): boolean {
  return managerStatus !== null || role === NodeRole.MANAGER;
}

export const info: Handler = async ({ calls, backend }) => {
  const [cluster, { nodes }, status] = await Promise.all([
    findCluster(calls),
    calls.unary(ControlService.methods.ListNodes, ListNodesRequest.create({})),
    calls.unary(OperatorService.methods.Status, StatusRequest.create({})),
  ]);
  const managers = nodes.filter(isManager);
  const states = containerCounts(backend.store);
  return ok({
    ID: status.clusterId,
    Containers: states.all,
    ContainersRunning: states.running,
    ContainersPaused: 0,
    ContainersStopped: states.all - states.running,
    Images: 0,
    Driver: "muster",
    DriverStatus: [["Leader", status.leaderId]],
    Plugins: { Volume: [], Network: ["overlay"], Authorization: null, Log: [] },
    MemoryLimit: true,
    SwapLimit: true,
    CpuCfsPeriod: true,
    CpuCfsQuota: true,
    CPUShares: true,
    CPUSet: true,
    PidsLimit: true,
    IPv4Forwarding: true,
    Debug: false,
    NFd: 0,
    OomKillDisable: true,
    NGoroutines: 0,
    SystemTime: new Date(backend.clock.now()).toISOString(),
    LoggingDriver: "json-file",
    CgroupDriver: "cgroupfs",
    NEventsListener: 0,
    KernelVersion: release(),
    OperatingSystem: "Muster",
    OSVersion: ownVersion,
    OSType: "linux",
    Architecture: unameArch,
    IndexServerAddress: "https://index.docker.io/v1/",
    RegistryConfig: { InsecureRegistryCIDRs: [], IndexConfigs: {}, Mirrors: [] },
    NCPU: cpus().length,
    MemTotal: totalmem(),
    GenericResources: null,
    DockerRootDir: "",
    HttpProxy: "",
    HttpsProxy: "",
    NoProxy: "",
    Name: hostname(),
    Labels: [],
    ExperimentalBuild: false,
    ServerVersion: ownVersion,
    Runtimes: {},
    DefaultRuntime: "",
    Swarm: {
      NodeID: status.managerId,
      NodeAddr: status.addr.replace(/:\d+$/, ""),
      LocalNodeState: "active",
      ControlAvailable: true,
      Error: "",
      RemoteManagers: managers.map(({ id, managerStatus, status: own }) => ({
        NodeID: id,
        Addr: managerStatus?.addr ?? own?.addr ?? "",
      })),
      Nodes: nodes.length,
      Managers: managers.length,
      Cluster: clusterObject(cluster),
    },
    LiveRestoreEnabled: false,
    Isolation: "",
    InitBinary: "",
    ContainerdCommit: { ID: "", Expected: "" },
    RuncCommit: { ID: "", Expected: "" },
    InitCommit: { ID: "", Expected: "" },
    SecurityOptions: [],
    Warnings: status.warnings.length > 0 ? status.warnings : null,
  });
};

const imageFilters = ["before", "dangling", "label", "reference", "since", "until"];

/** Empty: the manager keeps no images, and clients that show an overview of an engine do without them. */
export const listImages: Handler = (request) => {
  filtersOf(request).accept(imageFilters);
  return ok([]);
};

const usageTypes = ["container", "image", "volume", "build-cache"] as const;
type UsageType = (typeof usageTypes)[number];

/** The kinds that the client asks for. Throws Failure. Before 1.42 it cannot choose. */
export function usageTypesOf({ query, version }: Pick<DockerRequest, "query" | "version">): ReadonlySet<UsageType> {
  const given = isOlder(version, "1.42") ? [] : query.getAll("type");
  if (given.length === 0) return new Set(usageTypes);
  return new Set(
    given.map((text) => {
      const type = usageTypes.find((each) => each === text);
      if (type === undefined) throw badRequest(`unknown object type: ${text}`);
      return type;
    }),
  );
}

/**
 * Disk usage in the shape of the version, as Docker's engine writes it: since 1.52 by kind, and until `verbose` asks for these alone, with the
 * lists of before. `containers`: their list, or what stands for it; null if nobody asks for them. Images, local volumes and build caches are on
 * the nodes, and nobody has added up their sizes.
 */
export function usageObject(
  { query, version }: Pick<DockerRequest, "query" | "version">,
  types: ReadonlySet<UsageType>,
  containers: { readonly total: number; readonly running: number; readonly list: unknown } | null,
): DockerObject {
  if (isOlder(version, "1.52")) {
    const list = (type: UsageType): readonly unknown[] | null => (types.has(type) ? [] : null);
    return {
      LayersSize: 0,
      Images: list("image"),
      Containers: containers?.list ?? null,
      Volumes: list("volume"),
      BuildCache: list("build-cache"),
      ...(isOlder(version, "1.42") ? { BuilderSize: 0 } : {}),
    };
  }
  const isVerbose = isSet(query.get("verbose"));
  const list = (type: UsageType): readonly unknown[] | undefined => (types.has(type) && !isVerbose ? [] : undefined);
  const usage = (type: UsageType): object | undefined => (types.has(type) ? {} : undefined);
  return {
    Images: list("image"),
    Containers: isVerbose ? undefined : containers?.list,
    Volumes: list("volume"),
    BuildCache: list("build-cache"),
    ImageUsage: usage("image"),
    ContainerUsage:
      containers === null
        ? undefined
        : {
            ActiveCount: containers.running || undefined,
            TotalCount: containers.total || undefined,
            Items: isVerbose ? containers.list : undefined,
          },
    VolumeUsage: usage("volume"),
    BuildCacheUsage: usage("build-cache"),
  };
}

/** Stands for the list of containers in a text; no name or label is within that text. */
const listMark = "containers";

export const diskUsage: Handler = async (request) => {
  const types = usageTypesOf(request);
  if (!types.has("container")) return ok(usageObject(request, types, null));
  const containers = await allContainers(request);
  const { running, total } = containers;
  const text = JSON.stringify(usageObject(request, types, { total, running, list: listMark }));
  const [before = "", after = ""] = text.split(JSON.stringify(listMark));
  return containers.write([before, after]);
};
