/** A node in Docker's API format. */
import {
  NodeRole,
  NodeSpec_Availability,
  NodeStatus_State,
  RaftMemberStatus_Reachability,
  type Node,
  type NodeDescription,
} from "../../proto/gen/messages.ts";
import { genericObjects } from "./task-spec.ts";
import {
  base64,
  enumWord,
  head,
  ifThere,
  mapOf,
  mapUnlessEmpty,
  unlessEmpty,
  unlessNone,
  type DockerObject,
} from "./values.ts";

function descriptionObject({ csiInfo, engine, hostname, platform, resources, tlsInfo }: NodeDescription): DockerObject {
  return {
    Hostname: unlessEmpty(hostname),
    Platform: { Architecture: unlessEmpty(platform?.architecture ?? ""), OS: unlessEmpty(platform?.os ?? "") },
    Resources: {
      NanoCPUs: unlessEmpty(resources?.nanoCpus ?? 0),
      MemoryBytes: unlessEmpty(resources?.memoryBytes ?? 0),
      GenericResources: genericObjects(resources?.generic ?? []),
    },
    Engine: {
      EngineVersion: unlessEmpty(engine?.engineVersion ?? ""),
      Labels: mapUnlessEmpty(engine?.labels ?? {}),
      Plugins: unlessNone(
        (engine?.plugins ?? []).map(({ name, type }) => ({ Type: unlessEmpty(type), Name: unlessEmpty(name) })),
      ),
    },
    TLSInfo: {
      TrustRoot: unlessEmpty(new TextDecoder().decode(tlsInfo?.trustRoot ?? new Uint8Array())),
      CertIssuerSubject: ifThere(tlsInfo?.certIssuerSubject, base64),
      CertIssuerPublicKey: ifThere(tlsInfo?.certIssuerPublicKey, base64),
    },
    CSIInfo: unlessNone(
      csiInfo.map(({ accessibleTopology, maxVolumesPerNode, nodeId, pluginName }) => ({
        PluginName: unlessEmpty(pluginName),
        NodeID: unlessEmpty(nodeId),
        MaxVolumesPerNode: unlessEmpty(maxVolumesPerNode),
        AccessibleTopology: ifThere(accessibleTopology, ({ segments }) => ({ Segments: mapUnlessEmpty(segments) })),
      })),
    ),
  };
}

export function nodeObject(node: Node): DockerObject {
  const { description, managerStatus, spec, status } = node;
  return {
    ...head(node),
    Spec: {
      Name: unlessEmpty(spec?.annotations?.name ?? ""),
      Labels: mapOf(spec?.annotations?.labels),
      Role: enumWord(NodeRole, spec?.desiredRole ?? NodeRole.WORKER),
      Availability: enumWord(NodeSpec_Availability, spec?.availability ?? NodeSpec_Availability.ACTIVE),
    },
    Description: ifThere(description, descriptionObject) ?? {},
    Status: {
      State: enumWord(NodeStatus_State, status?.state ?? NodeStatus_State.UNKNOWN),
      Message: unlessEmpty(status?.message ?? ""),
      Addr: unlessEmpty(status?.addr ?? ""),
    },
    ManagerStatus: ifThere(managerStatus, ({ addr, leader, reachability }) => ({
      Leader: unlessEmpty(leader),
      Reachability: enumWord(RaftMemberStatus_Reachability, reachability),
      Addr: unlessEmpty(addr),
    })),
  };
}
