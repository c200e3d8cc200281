// Proposals of a leader's duties belong to their term: they are never written later.
import test from "ava";
import { ErrorCode } from "../../runtime/error-codes.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { addManager, create, proposal, service } from "./store-kit.ts";

function world(seed: number) {
  const simulation = new Simulation({ seed });
  const managers = ["m1", "m2"].map((name) => addManager(simulation, name));
  const { clock } = simulation;
  const run = (ms: number) => clock.run({ untilMs: clock.now() + ms });
  const leader = () => managers.find(({ leadership }) => leadership.isLeading());
  return { simulation, managers, clock, run, leader };
}

test("a proposal of the current term is written, and one of another term is rejected permanently", async (t) => {
  const { leader, run } = world(1);
  await run(2_000);
  const first = leader();
  const epoch = first?.replica.epoch ?? 0;
  const present = first?.leadership.proposer.propose({
    ...proposal([create({ service: service("s1", "one") })]),
    epoch,
  });
  const other = first?.leadership.proposer.propose({
    ...proposal([create({ service: service("s2", "two") })]),
    epoch: epoch + 1,
  });
  await run(1_000);
  t.like(await present, { kind: "committed" });
  t.like(await other, { kind: "refused", code: ErrorCode.staleEpoch });
});

test("a proposal made as its leader was cut off is not written by its successor, and the proposer learns it", async (t) => {
  const { simulation, leader, run, managers } = world(2);
  await run(2_000);
  const deposed = leader();
  const name = deposed?.process.name ?? "";
  const epoch = deposed?.replica.epoch ?? 0;
  simulation.network.cut(name, "nats");
  simulation.network.cut("nats", name);
  const late = deposed?.leadership.proposer.propose({
    ...proposal([create({ service: service("s1", "late") })]),
    epoch,
  });
  await run(20_000);
  t.not(leader(), deposed);
  simulation.network.healAll();
  await run(20_000);
  t.like(await late, { kind: "refused", code: ErrorCode.staleEpoch });
  for (const { replica } of managers) t.is(replica.get("service", "s1"), undefined);
});
