/**
 * Removes what must never leave a manager through Control and Watch: private keys, unlock keys, network keys and secret data.
 * Join tokens leave only through Control's answers about the current cluster, whose callers may join nodes.
 */
import { CAConfig, Cluster, ClusterSpec, RootCA, RootRotation, Secret, SecretSpec } from "../proto/gen/messages.ts";
import { networkDefaults } from "./allocation/network-defaults.ts";

const nothing = new Uint8Array();

function redactedRoot(root: RootCA): RootCA {
  const rotation = root.rootRotation;
  return RootCA.patch(root, {
    caKey: nothing,
    rootRotation: rotation === null ? null : RootRotation.patch(rotation, { caKey: nothing }),
  });
}

/** The spec as it is stored: a signing key from the request is kept only in the root, where signers read it. */
export function withoutSigningKey(spec: ClusterSpec): ClusterSpec {
  const { caConfig } = spec;
  if (caConfig === null || (caConfig.signingCaCert.length === 0 && caConfig.signingCaKey.length === 0)) return spec;
  return ClusterSpec.patch(spec, {
    caConfig: CAConfig.patch(caConfig, { signingCaCert: nothing, signingCaKey: nothing }),
  });
}

export function redactedCluster(cluster: Cluster): Cluster {
  const { spec, rootCa } = cluster;
  const caConfig = spec?.caConfig ?? null;
  return Cluster.patch(cluster, {
    spec:
      spec === null || caConfig === null
        ? spec
        : ClusterSpec.patch(spec, {
            caConfig: CAConfig.patch(caConfig, { signingCaCert: nothing, signingCaKey: nothing }),
          }),
    rootCa: rootCa === null ? null : redactedRoot(rootCa),
    networkBootstrapKeys: [],
    unlockKeys: [],
    defaultAddressPool:
      cluster.defaultAddressPool.length > 0 ? cluster.defaultAddressPool : networkDefaults.addressPools,
    subnetSize: cluster.subnetSize || networkDefaults.subnetLength,
    VXLANUDPPort: cluster.VXLANUDPPort || networkDefaults.dataPathPort,
  });
}

/** For callers that did not request the tokens: watchers, readers of the history, and people who inspect the cluster. */
export function withoutJoinTokens(cluster: Cluster): Cluster {
  const { rootCa } = cluster;
  return rootCa === null || rootCa.joinTokens === null
    ? cluster
    : Cluster.patch(cluster, { rootCa: RootCA.patch(rootCa, { joinTokens: null }) });
}

export function redactedSecret(secret: Secret): Secret {
  return secret.spec === null
    ? secret
    : Secret.patch(secret, { spec: SecretSpec.patch(secret.spec, { data: nothing }) });
}
