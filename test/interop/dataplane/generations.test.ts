// Our dataplane driver under a main of Felix 3.32, written with a codec generated from that version's wire table, with real
// packets.
import { frameOf } from "../../../edges/dataplane/frames.ts";
import { addresses } from "../../fixtures/packet-lab.ts";
import { allow, body } from "../../fixtures/dataplane-main.ts";
import { lab, start, tcp, test } from "../../fixtures/dataplane-scene.ts";
import { felix332 } from "../../fixtures/felix-wire.ts";

const wire = felix332();
const frame = (message: object): Uint8Array => frameOf(wire.encode("ToDataplane", message));

const web = { name: "web", namespace: "shop", kind: "NetworkPolicy" };

const policy = (action: string): object => ({
  active_policy_update: {
    id: web,
    policy: { tier: "default", inbound_rules: [{ action, protocol: { name: "tcp" } }] },
  },
});

const endpoint = (name: "a" | "b", policies: readonly object[]): object => ({
  workload_endpoint_update: {
    id: { orchestrator_id: "k8s", workload_id: name, endpoint_id: "eth0" },
    endpoint: {
      state: "active",
      name: `cali${name}`,
      ipv4_nets: [`${addresses[name].v4}/32`],
      profile_ids: ["open"],
      tiers: policies.length === 0 ? [] : [{ name: "default", ingress_policies: policies, default_action: "Deny" }],
      annotations: { of: name },
    },
  },
});

test("a main of 3.32 opens and closes traffic by its policies, and gets the endpoint's status, with an error for missing policies", async (t) => {
  const main = start(t);
  main.send(body.config(), body.profile("open", [allow]));
  for (const message of [policy("allow"), endpoint("a", []), endpoint("b", [web])]) main.write(frame(message));
  main.send(body.inSync);
  await main.settled();
  t.true(await lab.a.reaches(tcp));
  t.is(main.statusOf("b"), "up");
  const said = main.received.find(({ workloadEndpointStatusUpdate: update }) => update?.id?.workloadId === "b");
  t.like(said?.workloadEndpointStatusUpdate?.endpoint, { name: "calib", annotations: { of: "b" } });
  main.write(frame(policy("deny")));
  await main.settled();
  t.false(await lab.a.reaches(tcp));
  main.write(frame({ active_policy_remove: { id: web } }));
  main.write(frame(policy("allow")));
  await main.settled();
  t.true(await lab.a.reaches(tcp));
  // A policy without a definition drops, and is reported once, however often it is evaluated.
  for (const each of ["b", "b"] as const) {
    main.write(frame(endpoint(each, [{ ...web, kind: "Unheard" }])));
    await main.settled();
  }
  t.false(await lab.a.reaches(tcp));
  t.is(main.statusOf("b"), "error");
  t.is(main.complaints.match(/main has not described policy Unheard shop\/web/g)?.length, 1, main.complaints);
  t.is(main.statusOf("a"), "up");
});
