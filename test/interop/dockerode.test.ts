// dockerode, unmodified: the same walk through its swarm calls at a stock manager and at ours; each result must be equal.
import anyTest from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { walkDockerode } from "../fixtures/dockerode-walk.ts";
import { labMissing } from "../fixtures/lab.ts";
import { walkBoth } from "../fixtures/stock-beside.ts";
import { patient } from "../support/slowness.ts";

const test = engineMissing() === null && labMissing() === null ? anyTest.serial : anyTest.serial.skip;

test("dockerode's calls have a stock manager's results", async (t) => {
  t.timeout(patient(300_000));
  const { ours, stock } = await walkBoth(t, walkDockerode);
  t.true(stock.length >= 40, stock.join("\n"));
  t.deepEqual(ours, stock);
});
