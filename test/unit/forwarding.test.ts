// Rules that an agent adds to a packet filter that drops forwarded packets, by the output of `iptables -S FORWARD`.
import test from "ava";
import { missingRules } from "../../linux/task-network/forwarding.ts";

const engine = "-A FORWARD -j DOCKER-USER\n-A FORWARD -o docker0 -j DOCKER\n";
const words = (listed: string): readonly string[] => missingRules(listed).map((rule) => rule.join(" "));

test("a filter that accepts everything is left unchanged, and so is a missing one", (t) => {
  t.deepEqual(words(`-P FORWARD ACCEPT\n${engine}`), []);
  t.deepEqual(words(""), []);
});

test("one that drops lets tasks send, get answers, and be reached by published ports and from other nodes, each added once", (t) => {
  const all = words(`-P FORWARD DROP\n${engine}`);
  t.deepEqual(all, [
    "-i mst+ -j ACCEPT",
    "-i vxm+ -o mst+ -j ACCEPT",
    "-o mst+ -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT",
  ]);
  const after = `-P FORWARD DROP\n${engine}${all.map((rule) => `-A FORWARD ${rule}\n`).join("")}`;
  t.deepEqual(words(after), []);
  t.deepEqual(words(after.replace(/^.*vxm.*\n/m, "")), [all[1]]);
});
