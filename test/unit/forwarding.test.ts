// Which rules an agent adds to a packet filter that drops what is forwarded, by what `iptables -S FORWARD` prints.
import test from "ava";
import { missingRules } from "../../node/task-network/forwarding.ts";

const engine = "-A FORWARD -j DOCKER-USER\n-A FORWARD -o docker0 -j DOCKER\n";
const words = (listed: string): readonly string[] => missingRules(listed).map((rule) => rule.join(" "));

test("a filter that lets everything through is left as it is, and so is none at all", (t) => {
  t.deepEqual(words(`-P FORWARD ACCEPT\n${engine}`), []);
  t.deepEqual(words(""), []);
});

test("one that drops lets tasks send, be answered, and be reached by published ports and from other nodes, each said once", (t) => {
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
