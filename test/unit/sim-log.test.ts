// The log of a simulation, as its readers see it.
import test from "ava";
import { Simulation } from "../../runtime/sim/simulation.ts";

/** Callbacks until a record has reached a reader, after others have read the log for a while and stopped. */
async function stepsOfRecord(stopped: number): Promise<number> {
  const simulation = new Simulation({ seed: 3 });
  const { clock } = simulation;
  const ports = simulation.ports("m1");
  const { log } = ports;
  let read = 0;
  const reader = { onRecord: () => void (read += 1), onCaughtUp: () => undefined, onGap: () => undefined };
  log.read(1, reader);
  for (let reading = 0; reading < stopped; reading += 1) {
    const ended = log.read(1, reader);
    await clock.run({ untilMs: clock.now() + 500 });
    ended.unsubscribe();
  }
  await clock.run({ untilMs: clock.now() + 5_000 - 500 * stopped });
  read = 0;
  const before = clock.steps;
  void log.append(new Uint8Array([1]), 0);
  await clock.run({ untilMs: clock.now() + 50 });
  if (read !== 1) throw new Error(`the record was read ${read} times`);
  return clock.steps - before;
}

test("nothing is sent to a reader that has stopped", async (t) => {
  t.is(await stepsOfRecord(4), await stepsOfRecord(0));
});
