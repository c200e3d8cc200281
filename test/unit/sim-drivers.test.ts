// The simulated drivers' account of starts, when an agent's disk goes back to a time before one.
import test from "ava";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { SimDrivers } from "../../simulation/nodes/drivers.ts";

const faults = {
  dieAtLaunch: 0,
  dieBeforeStart: 0,
  dieAfterStart: 0,
  endsByItself: 0,
  refuses: 0,
  pluginCrashMs: 0,
  pluginHang: 0,
  takenAway: 0,
  networkFailure: 0,
};

test("S35: a start that no manager knew of does not count after the disk went back; a reported one does", (t) => {
  const clock = new SimClock();
  const trace = new SimTrace(clock);
  const drivers = new SimDrivers(clock, new SimRandom("drivers"), trace, faults, null);
  for (const taskId of ["told", "unknown"]) {
    const task = { starts: 1, isAlive: true, exit: null, well: { fromMs: 0, untilMs: 0 }, watchers: [] };
    drivers.machine.tasks.set(`${taskId}/web/1`, task);
  }
  drivers.forgetStarts((taskId) => taskId === "told");
  t.is(trace.marks.get("driver.start.forgotten"), 1);
  const again = (taskId: string): void => {
    const task = drivers.machine.tasks.get(`${taskId}/web/1`);
    if (task !== undefined) task.starts += 1;
  };
  again("unknown");
  t.is(drivers.flaw(), null);
  again("told");
  t.is(drivers.flaw(), "S35: task told/web/1 was started 2 times by its driver");
});
