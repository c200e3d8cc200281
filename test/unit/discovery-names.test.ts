// How names resolve for a task: machines/discovery/names.ts and answer.ts.
import test from "ava";
import fc from "fast-check";
import { answerTo, type Answer } from "../../machines/discovery/answer.ts";
import { NetworkNames, taskTtlS, virtualTtlS } from "../../machines/discovery/names.ts";
import { nameServerAddresses, taskResolver } from "../../machines/discovery/resolver.ts";
import { namesLabels } from "../../machines/driver/labels.ts";
import { networkScene } from "../support/network-scene.ts";

const view = networkScene({
  networks: { back: "10.0.1.0/24", front: "10.0.2.0/24" },
  services: [
    { name: "web", network: "back", virtualAddress: "10.0.1.2", aliases: ["www"] },
    { name: "db", network: "back", virtualAddress: "" },
    { name: "web", network: "front", virtualAddress: "10.0.2.2" },
  ],
  tasks: [
    { id: "aaaaaaaaaaaaaaaaaaaaaaaaa", service: "web", slot: 1, network: "back", address: "10.0.1.3" },
    { id: "bbbbbbbbbbbbbbbbbbbbbbbbb", service: "web", slot: 2, network: "back", address: "10.0.1.4", node: "two" },
    { id: "ccccccccccccccccccccccccc", service: "web", slot: 3, network: "back", address: "10.0.1.5", node: "engine" },
    { id: "ddddddddddddddddddddddddd", service: "web", slot: 4, network: "back", address: "10.0.1.6", ready: false },
    {
      id: "eeeeeeeeeeeeeeeeeeeeeeeee",
      service: "db",
      slot: 1,
      network: "back",
      address: "10.0.1.7",
      hostname: "Store",
    },
    {
      id: "fffffffffffffffffffffffff",
      service: "db",
      slot: 2,
      network: "back",
      address: "10.0.1.8",
      aliases: ["spare"],
    },
    { id: "ggggggggggggggggggggggggg", service: "web", slot: 1, network: "front", address: "10.0.2.3" },
  ],
});

const names = new Map([...view.networks.values()].map((each) => [each.name, new NetworkNames(each, view, "one")]));

function asked(name: string, type = "A", networks: readonly string[] = ["back"], isInternal = false): Answer {
  const of = networks.map((network) => names.get(network) as NetworkNames);
  return answerTo({ name, type }, { networks: of, isInternal }, taskTtlS);
}

const virtual = (address: string): Answer => ({ kind: "addresses", ttlS: virtualTtlS, addresses: [address] });
const tasks = (...addresses: string[]): Answer => ({ kind: "addresses", ttlS: taskTtlS, addresses });

for (const [title, name, answer] of [
  ["a service's name is its virtual address", "web", virtual("10.0.1.2")],
  ["its alias too", "www", virtual("10.0.1.2")],
  ["whatever the case of its letters", "WeB.", virtual("10.0.1.2")],
  ["with the network's name behind it", "web.back", virtual("10.0.1.2")],
  ["with another network's name after it, it is forwarded", "web.front", { kind: "elsewhere" }],
  ["a service without a virtual address resolves to its tasks", "db", tasks("10.0.1.7", "10.0.1.8")],
  ["tasks.NAME resolves to the ready, reachable tasks", "tasks.web", tasks("10.0.1.3", "10.0.1.4")],
  ["tasks.ALIAS does too", "tasks.www.back", tasks("10.0.1.3", "10.0.1.4")],
  ["a task's name is its address", "web.2.bbbbbbbbbbbbbbbbbbbbbbbbb", tasks("10.0.1.4")],
  ["the first letters of its id are too", "aaaaaaaaaaaa", tasks("10.0.1.3")],
  ["and its host's name", "store", tasks("10.0.1.7")],
  ["and its own alias", "spare", tasks("10.0.1.8")],
  ["a task that is not ready has no name", "web.4.ddddddddddddddddddddddddd", { kind: "elsewhere" }],
  ["nor has an unreachable one", "web.3.ccccccccccccccccccccccccc", { kind: "elsewhere" }],
  ["other names are forwarded", "example.org", { kind: "elsewhere" }],
] as const)
  test(`${title}: ${name}`, (t) => t.deepEqual(asked(name), answer));

test("a known name has no records of other types, and such queries are not forwarded", (t) => {
  t.deepEqual(asked("web", "AAAA"), { kind: "empty" });
  t.deepEqual(asked("web", "MX"), { kind: "empty" });
  t.deepEqual(asked("web", "ANY"), virtual("10.0.1.2"));
});

test("a service without ready tasks keeps its name", (t) => {
  const scene = networkScene({
    networks: { back: "10.0.1.0/24" },
    services: [
      { name: "a", network: "back", virtualAddress: "" },
      { name: "b", network: "back", virtualAddress: "10.0.1.2" },
    ],
    tasks: [],
  });
  const [network] = [...scene.networks.values()];
  const own = [new NetworkNames(network as never, scene, "one")];
  const of = (name: string): Answer => answerTo({ name, type: "A" }, { networks: own, isInternal: false }, taskTtlS);
  t.deepEqual(of("a"), { kind: "empty" });
  t.deepEqual(of("tasks.a"), { kind: "empty" });
  t.deepEqual(of("b"), virtual("10.0.1.2"));
});

test("the first of a task's networks that has a name answers", (t) => {
  t.deepEqual(asked("web", "A", ["front", "back"]), virtual("10.0.2.2"));
  t.deepEqual(asked("web", "A", ["back", "front"]), virtual("10.0.1.2"));
  t.deepEqual(asked("web.back", "A", ["front", "back"]), virtual("10.0.1.2"));
  t.deepEqual(asked("db", "A", ["front"]), { kind: "elsewhere" });
});

test("queries from an internal network are not forwarded", (t) => {
  t.deepEqual(asked("example.org", "A", ["back"], true), { kind: "unknown" });
  t.deepEqual(asked("4.3.2.1.in-addr.arpa", "PTR", ["back"], true), { kind: "unknown" });
});

test("an address resolves to its task's name, in the task's own networks", (t) => {
  const pointer = asked("3.1.0.10.in-addr.arpa", "PTR");
  t.deepEqual(pointer, { kind: "pointers", ttlS: taskTtlS, names: ["web.1.aaaaaaaaaaaaaaaaaaaaaaaaa.back"] });
  t.deepEqual(asked("99.1.0.10.IN-ADDR.ARPA.", "PTR"), { kind: "unknown" });
  t.deepEqual(asked("3.1.0.10.in-addr.arpa", "PTR", ["front"]), { kind: "elsewhere" });
  t.deepEqual(asked("8.8.8.8.in-addr.arpa", "PTR"), { kind: "elsewhere" });
  t.deepEqual(asked("3.1.0.999.in-addr.arpa", "PTR"), { kind: "elsewhere" });
});

test("a task never gets an address of a network that it is not in, whatever it queries", (t) => {
  const words = fc.constantFrom(
    "web",
    "www",
    "db",
    "tasks",
    "back",
    "front",
    "store",
    "arpa",
    "in-addr",
    "1",
    "2",
    "3",
    "",
  );
  const name = fc.array(words, { maxLength: 6 }).map((parts) => parts.join("."));
  fc.assert(
    fc.property(
      name,
      fc.constantFrom("A", "AAAA", "PTR", "ANY"),
      fc.constantFrom("back", "front"),
      (text, type, network) => {
        const answer = asked(text, type, [network]);
        const prefix = network === "back" ? "10.0.1." : "10.0.2.";
        if (answer.kind === "addresses") t.true(answer.addresses.every((each) => each.startsWith(prefix)));
        if (answer.kind === "pointers") t.true(answer.names.every((each) => each.endsWith(`.${network}`)));
      },
    ),
  );
});

test("each agent of a machine listens on its own addresses, none of which is reserved or a cloud's", (t) => {
  const seen = new Set<string>();
  for (let number = 0; number < 65_536; number += 251) {
    const { 4: address, 6: other } = nameServerAddresses(number.toString(16).padStart(8, "0").slice(-4).padEnd(8, "0"));
    t.regex(address, /^169\.254\.(?!0\.|255\.|169\.)\d+\.\d+$/);
    t.regex(other, /^fd6d:/);
    seen.add(address).add(other);
  }
  t.true(seen.size > 500);
});

test("a node says why its tasks cannot query it, and otherwise nothing", (t) => {
  t.deepEqual(namesLabels(""), {});
  t.deepEqual(namesLabels("EADDRINUSE"), { "muster.names.reason": "EADDRINUSE" });
});

test("a task's resolver queries its agent, for single-label names first", (t) => {
  const none = { servers: [], searches: [], options: [] };
  t.deepEqual(taskResolver(none, "169.254.1.1"), { servers: ["169.254.1.1"], searches: [], options: ["ndots:0"] });
  const asked = { servers: ["1.1.1.1"], searches: ["corp"], options: ["ndots:2", "rotate"] };
  t.deepEqual(taskResolver(asked, "169.254.1.1"), { ...asked, servers: ["169.254.1.1"] });
});
