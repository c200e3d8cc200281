// Where virtual addresses lead: the plan, its scripts for nft, and that incremental changes equal the whole.
import test from "ava";
import fc from "fast-check";
import {
  changedVirtual,
  virtualPlan,
  virtualTableOf,
  wholeVirtual,
  withoutVirtual,
  type VirtualPlan,
} from "../../machines/discovery/virtual-addresses.ts";
import { NameMachine } from "../../simulation/nodes/name-machine.ts";
import { networkScene } from "../support/network-scene.ts";

const table = virtualTableOf("0123abcd");

test("a virtual address stands for the ready, reachable tasks of its service, each of its own network", (t) => {
  const view = networkScene({
    networks: { back: "10.0.1.0/24", front: "10.0.2.0/24" },
    services: [
      { name: "web", network: "back", virtualAddress: "10.0.1.2" },
      { name: "web", network: "front", virtualAddress: "10.0.2.2" },
      { name: "rr", network: "back", virtualAddress: "" },
      { name: "idle", network: "back", virtualAddress: "10.0.1.9" },
    ],
    tasks: [
      { id: "a", service: "web", slot: 1, network: "back", address: "10.0.1.4" },
      { id: "a", service: "web", slot: 1, network: "front", address: "10.0.2.4" },
      { id: "b", service: "web", slot: 2, network: "back", address: "10.0.1.3", node: "two" },
      { id: "c", service: "web", slot: 3, network: "back", address: "10.0.1.5", node: "engine" },
      { id: "d", service: "web", slot: 4, network: "back", address: "10.0.1.6", ready: false },
      { id: "e", service: "rr", slot: 1, network: "back", address: "10.0.1.7" },
    ],
  });
  const links = [{ hostInterface: "mst1", addresses: [{ address: "10.0.1.4" }, { address: "10.0.2.4" }] }];
  const plan = virtualPlan(view, "one", links);
  t.deepEqual(
    [...plan.services],
    [
      ["10.0.1.2", ["10.0.1.3", "10.0.1.4"]],
      ["10.0.1.9", []],
      ["10.0.2.2", ["10.0.2.4"]],
    ],
  );
  t.deepEqual(plan.known, ["10.0.1.3", "10.0.1.4", "10.0.1.5", "10.0.1.6", "10.0.1.7", "10.0.2.4"]);
  t.deepEqual([plan.own, plan.links], [["10.0.1.4", "10.0.2.4"], ["mst1"]]);
});

test("unchanged state is not programmed, and removed state leaves nothing", (t) => {
  const plan: VirtualPlan = { services: new Map([["10.0.1.2", ["10.0.1.3"]]]), known: [], own: [], links: [] };
  t.is(changedVirtual(plan, plan, table), null);
  const machine = new NameMachine();
  machine.nft(withoutVirtual(table));
  machine.nft(wholeVirtual(plan, table));
  t.deepEqual(machine.leadsTo("10.0.1.2"), ["10.0.1.3"]);
  machine.nft(withoutVirtual(table));
  t.deepEqual([machine.leadsTo("10.0.1.2"), machine.tables], [null, []]);
});

const address = fc.integer({ min: 2, max: 9 }).map((last) => `10.0.1.${last}`);
const some = fc.uniqueArray(address, { maxLength: 4 }).map((all) => all.toSorted());
const plans = fc.record({
  services: fc
    .uniqueArray(fc.tuple(fc.integer({ min: 100, max: 105 }), some), { selector: ([last]) => last, maxLength: 4 })
    .map((all) => new Map(all.map(([last, to]) => [`10.0.1.${last}`, to]))),
  known: some,
  own: some,
  links: fc.uniqueArray(fc.constantFrom("mst1", "mst2", "mst3")).map((all) => all.toSorted()),
});

test("a series of changes equals its final state as a whole", (t) => {
  fc.assert(
    fc.property(fc.array(plans, { minLength: 2, maxLength: 6 }), (way) => {
      const [first, last] = [way[0] as VirtualPlan, way.at(-1) as VirtualPlan];
      const [stepwise, whole] = [new NameMachine(), new NameMachine()];
      stepwise.nft(wholeVirtual(first, table));
      let before = first;
      for (const plan of way.slice(1)) {
        const script = changedVirtual(before, plan, table);
        if (script !== null) stepwise.nft(script);
        before = plan;
      }
      whole.nft(wholeVirtual(last, table));
      t.deepEqual(stepwise.content(), whole.content());
      for (const [virtual, to] of last.services) t.deepEqual(stepwise.leadsTo(virtual), to);
    }),
  );
});
