// The invariant of handshakes in simulations: who has to trust whom, before and after the cluster's root is replaced.
import test from "ava";
import { SimRandom } from "../../runtime/sim/random.ts";
import { handshakeProblem, joinsTooLate } from "../../simulation/invariants/certificates.ts";
import { simulatedAuthority } from "../../simulation/managers/authority.ts";

const authority = simulatedAuthority(new SimRandom("1"));

async function serverWith(rootPem: string, acceptedPem: string) {
  const request = { csrPem: "SIMULATED REQUEST 1", nodeId: "m", role: "swarm-manager", organization: "c" };
  const signed = { nowMs: 0, validitySeconds: 60, rootCertificatePem: rootPem, rootKeyPem: "", intermediatesPem: "" };
  const certificatePem = await authority.issue({ ...request, ...signed } as never);
  return { certificatePem, acceptedPem } as never;
}

test("S22: a joining node trusts a manager, unless its root was replaced; then it needs another token", async (t) => {
  const [before, after] = [await authority.createRoot({ nowMs: 0 }), await authority.createRoot({ nowMs: 0 })];
  const material = { rootPem: before.certificatePem, certificatePem: "", keyPem: "" };
  const current = await serverWith(before.certificatePem, before.certificatePem);
  t.is(handshakeProblem(current, "bootstrap", material), null);
  const replaced = await serverWith(after.certificatePem, after.certificatePem);
  t.regex(handshakeProblem(replaced, "bootstrap", material) ?? "", /does not trust/);
  t.true(joinsTooLate(replaced, "bootstrap", material));
  t.false(joinsTooLate(replaced, "node", material), "a rotation waits for nodes that have joined");
  const rotating = await serverWith(after.certificatePem, before.certificatePem + after.certificatePem);
  t.regex(handshakeProblem(rotating, "bootstrap", material) ?? "", /does not trust/);
  t.false(joinsTooLate(rotating, "bootstrap", material), "the manager still accepts the node's root");
});
