import test from "ava";
import { meetsPlacement, parseConstraint } from "../../machines/scheduling/constraints.ts";
import { Node, NodeRole, Placement, type Node as NodeMessage } from "../../proto/gen/messages.ts";
import { readyNode } from "../support/scheduling.ts";

const node = readyNode("Node1", {
  labels: { zone: "EU-1", Case: "x" },
  engineLabels: { storage: "ssd", site: "Lab" },
  addr: "10.1.2.3",
  role: NodeRole.MANAGER,
});
const bare = Node.create({ id: "bare" });

const meets = (text: string, on: NodeMessage = node): boolean =>
  meetsPlacement(Placement.create({ constraints: [text] }), on);

test("each key is compared with the node's property, ignoring case", (t) => {
  const holding = [
    "node.id==node1",
    "node.hostname == HOST-NODE1",
    "node.role==manager",
    "NODE.ROLE!=worker",
    "node.site==lab",
    "node.platform.os==Linux",
    "node.platform.arch==x86_64",
    "node.labels.zone==eu-1",
    "engine.labels.storage!=hdd",
    "engine.labels.storage==SSD",
  ];
  for (const text of holding) t.true(meets(text), text);
  for (const text of holding)
    t.false(meets(text.includes("==") ? text.replace("==", "!=") : text.replace("!=", "==")), `not ${text}`);
});

test("the name of a label keeps its case, and a missing label is the empty string", (t) => {
  t.true(meets("node.labels.Case==X"));
  t.false(meets("node.labels.case==x"));
  t.true(meets("node.labels.case!=x"));
  t.true(meets("engine.labels.storage!=ssd", bare));
  t.false(meets("engine.labels.storage==ssd", bare));
  t.false(meets("node.platform.os==linux", bare));
  t.true(meets("node.site!=lab", bare));
});

test("an unknown key never matches, not even with !=", (t) => {
  t.false(meets("node.color==red"));
  t.false(meets("node.color!=red"));
  t.false(meets("node.labels.!=red"));
});

test("an address is compared with one address or with a range", (t) => {
  t.true(meets("node.ip==10.1.2.3"));
  t.false(meets("node.ip!=10.1.2.3"));
  t.true(meets("node.ip==10.1.0.0/16"));
  t.false(meets("node.ip==10.2.0.0/16"));
  t.true(meets("node.ip!=10.2.0.0/16"));
  t.false(meets("node.ip==10.1"));
  t.false(meets("node.ip!=10.1"));
  t.true(meets("node.ip==10.1.2.3", readyNode("n", { addr: "::ffff:10.1.2.3" })));
});

test("all constraints must match, an empty list matches, and an unparsable one never does", (t) => {
  t.true(meetsPlacement(null, node));
  t.true(meetsPlacement(Placement.create({ constraints: ["node.role==manager", "node.labels.zone==eu-1"] }), node));
  t.false(meetsPlacement(Placement.create({ constraints: ["node.role==manager", "node.labels.zone==eu-2"] }), node));
  t.false(meets("node.role"));
});

test("an invalid constraint is rejected in SwarmKit's words", (t) => {
  const message = (text: string): string | null => {
    const outcome = parseConstraint(text);
    return outcome.kind === "invalid" ? outcome.message : null;
  };
  t.is(message("node.role"), "constraint expected one operator from ==, !=");
  t.is(message("1node==x"), "key '1node' is invalid");
  t.is(message("node.id=="), "value '' is invalid");
  t.is(message("node.id != a!=b"), "value 'a!=b' is invalid");
  t.is(message("node.labels.a-b_c == x y"), null);
});
