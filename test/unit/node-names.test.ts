// A hostname that several nodes have is shown with the id wherever it stands for a node.
import test from "ava";
import { nodeNames } from "../../machines/node-names.ts";
import { Service, TaskState } from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

test("a hostname that several nodes have is followed by the id, and a node without one is called by its id", (t) => {
  const nameOf = nodeNames([
    readyNode("n1", "alpha"),
    readyNode("n2", "beta"),
    readyNode("n3", "alpha"),
    readyNode("n4", ""),
  ]);
  t.deepEqual(["n1", "n2", "n3", "n4", "n5"].map(nameOf), ["alpha (n1)", "beta", "alpha (n3)", "n4", "n5"]);
});

test("task ls tells two nodes of one hostname apart, and the hostname alone is refused", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", readyNode("n1", "alpha"), readyNode("n2", "alpha"));
  const service = Service.create({ id: "web" });
  manager.seed("task", taskOf(service, 1, "n2", TaskState.RUNNING));
  const { lines } = await muster("task", "ls", "--no-trunc");
  t.regex(lines.join("\n"), /alpha \(n2\)/);
  t.notRegex(lines.join("\n"), /alpha \(n1\)/);
  const refused = await muster("node", "inspect", "alpha");
  t.deepEqual(refused.remarks, ["muster: node alpha is ambiguous (2 matches found)"]);
});
