// A manager process starts its next life when its log has moved, and when its NATS is away.
import test from "ava";
import type { Life, ManagerProcess } from "../../processes/manager.ts";
import { startLives } from "../../processes/manager-lives.ts";
import { NatsAway } from "../../processes/managers-nats.ts";
import { Interrupted } from "../../processes/signals.ts";
import { UserError } from "../../lib/user-error.ts";
import { until } from "../fixtures/until.ts";

const away = (): never => {
  throw new NatsAway("no nats-server answers at 10.0.0.1:2378");
};

/** Lives that run one after the other; each entry is what the start of that life does. */
function lives(steps: readonly ((life: Life) => void)[]) {
  const events: string[] = [];
  const begun: Life[] = [];
  const ending = new AbortController();
  const start = async (life: Life): Promise<ManagerProcess> => {
    const number = begun.push(life);
    steps[number - 1]?.(life);
    events.push(`life ${number} serves`);
    return {
      manager: {} as never,
      advertise: "10.0.0.2:2377",
      controlSocket: `socket ${number}`,
      warnings: [],
      stop: async () => void events.push(`life ${number} ends`),
    };
  };
  const started = startLives(
    start,
    { ending: ending.signal, onBroken: (error) => void events.push(`broken: ${(error as Error).message}`) },
    (error) => void events.push(error.message),
    1,
  );
  return { begun, ending, events, started };
}

/** Nothing happens meanwhile. */
const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

test("a manager whose NATS is away tries again until it is back", async (t) => {
  const { events, started } = lives([away, away]);
  const process = await started;
  t.is(process.controlSocket, "socket 3");
  t.deepEqual(events, [
    "no nats-server answers at 10.0.0.1:2378",
    "no nats-server answers at 10.0.0.1:2378",
    "life 3 serves",
  ]);
});

test("the life after a move waits for its NATS, and the process goes on", async (t) => {
  const { begun, events, started } = lives([() => {}, away, away]);
  const process = await started;
  begun[0]?.restart();
  await until("the next life", () => process.controlSocket === "socket 4");
  t.deepEqual(
    events.filter((event) => !event.startsWith("no nats-server")),
    ["life 1 serves", "life 1 ends", "life 4 serves"],
  );
});

test("a manager that waits for its NATS ends at a signal, and when it is stopped", async (t) => {
  const first = lives(Array.from({ length: 9_999 }, () => away));
  first.ending.abort();
  await t.throwsAsync(first.started, { instanceOf: Interrupted });

  const later = lives([() => {}, ...Array.from({ length: 9_999 }, () => away)]);
  const process = await later.started;
  later.begun[0]?.restart();
  await until("the next life's attempts", () => later.begun.length > 2);
  await process.stop();
  const count = later.begun.length;
  await settle();
  t.is(later.begun.length, count);
  t.deepEqual(
    later.events.filter((event) => event.startsWith("broken")),
    [],
  );
});

test("any other error of a start ends the process", async (t) => {
  const refuse = (): never => {
    throw new UserError("the disk is full");
  };
  await t.throwsAsync(lives([refuse]).started, { message: "the disk is full" });
  const { begun, events, started } = lives([() => {}, refuse]);
  await started;
  begun[0]?.restart();
  await until("the end", () => events.at(-1) === "broken: the disk is full");
  t.pass();
});
