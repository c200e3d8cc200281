/** Objects of dataplanes, and arbitrary changes of them. */
import * as fc from "fast-check";
import type { DataplaneDelta, DataplaneObject } from "../../machines/dataplane/objects.ts";
import {
  Policy,
  PolicyID,
  Profile,
  ProfileID,
  Rule,
  TierInfo,
  WorkloadEndpoint,
  WorkloadEndpointID,
} from "../../proto/gen/felix.ts";
import { tierEntries } from "../../proto/tier-policies.ts";

export { fc };

type Of<Kind extends DataplaneObject["kind"]> = Extract<DataplaneObject, { readonly kind: Kind }>;

export const setOf = (id: string, members: readonly string[]): Of<"ip-set"> => ({
  kind: "ip-set",
  id,
  type: 0,
  members,
});

export const policyOf = (name: string, sets: readonly string[]): Of<"policy"> => ({
  kind: "policy",
  id: PolicyID.create({ tier: "default", name }),
  policy: Policy.create({ inboundRules: [Rule.create({ action: "allow", srcIpSetIds: sets })] }),
});

const profileOf = (name: string, sets: readonly string[]): Of<"profile"> => ({
  kind: "profile",
  id: ProfileID.create({ name }),
  profile: Profile.create({ inboundRules: [Rule.create({ action: "allow", srcIpSetIds: sets })] }),
});

export const endpointOf = (
  workloadId: string,
  tiers: readonly TierInfo[],
  profileIds: readonly string[] = [],
): Of<"workload"> => ({
  kind: "workload",
  id: WorkloadEndpointID.create({ orchestratorId: "muster", workloadId, endpointId: "eth0" }),
  endpoint: WorkloadEndpoint.create({ state: "active", name: `cali${workloadId}`, tiers, profileIds }),
});

const some = (prefix: string) => fc.nat({ max: 3 }).map((number) => `${prefix}${number}`);
const members = fc.uniqueArray(some("10.0.0."), { maxLength: 4 });

const arbitraryObject: fc.Arbitrary<DataplaneObject> = fc.oneof(
  fc.tuple(some("s"), members).map(([id, list]) => setOf(id, list)),
  fc.tuple(some("p"), fc.uniqueArray(some("s"), { maxLength: 2 })).map(([name, sets]) => policyOf(name, sets)),
  fc.tuple(some("f"), fc.uniqueArray(some("s"), { maxLength: 2 })).map(([name, sets]) => profileOf(name, sets)),
  fc
    .tuple(some("w"), fc.uniqueArray(some("p"), { maxLength: 2 }), fc.uniqueArray(some("f"), { maxLength: 2 }))
    .map(([id, policies, profiles]) =>
      endpointOf(id, [TierInfo.create({ name: "default", ingressPolicies: tierEntries(policies) })], profiles),
    ),
);

export const arbitraryDelta: fc.Arbitrary<DataplaneDelta> = fc.oneof(
  { weight: 3, arbitrary: arbitraryObject.map((object) => ({ kind: "put", object }) as const) },
  { weight: 2, arbitrary: arbitraryObject.map((ref) => ({ kind: "removed", ref }) as const) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(some("s"), members, members)
      .map(
        ([id, added, removed]) =>
          ({ kind: "members", id, added, removed: removed.filter((one) => !added.includes(one)) }) as const,
      ),
  },
);
