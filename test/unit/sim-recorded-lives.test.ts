// The rings of a simulation's processes: one limit for all of them, and what is forgotten at it.
import test from "ava";
import { RecordingPart } from "../../proto/gen/messages.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { RecordedLives, type RecordedLife } from "../../runtime/sim/recorded-lives.ts";
import { quietLog } from "../support/page-client.ts";

/** Text that does not compress. */
let seed = 1;
function noise(length: number): string {
  let text = "";
  while (text.length < length) {
    seed = (seed * 48_271) % 2_147_483_647;
    text += seed.toString(36);
  }
  return text.slice(0, length);
}

function world(bytesMax: number) {
  const clock = new SimClock();
  const lives = new RecordedLives(() => clock.now(), bytesMax);
  const begin = (name: string): RecordedLife => {
    const life = { name, isManager: false, clock: clock.forProcess(0), log: quietLog, ring: lives.ring() };
    lives.add(life);
    return life;
  };
  /** Lines of a kilobyte each, one every millisecond. */
  const write = (life: RecordedLife, lines: number): void => {
    for (let line = 0; line < lines; line += 1) {
      clock.advance(1);
      life.ring.addLine({ atMs: clock.now(), level: "info", text: noise(1_000), fields: "" });
    }
  };
  return { clock, lives, begin, write };
}

const timesOf = ({ ring }: RecordedLife): readonly number[] =>
  Array.from(ring.parts(0), (part) => RecordingPart.decode(part).line?.atMs ?? 0);

const bytesOf = (lives: RecordedLives): number => lives.all.reduce((sum, { ring }) => sum + ring.bytes, 0);

test("rings of all processes together stay within the limit, and reach back equally far", (t) => {
  const { begin, clock, lives, write } = world(400_000);
  const [busy, calm] = [begin("busy"), begin("calm")];
  for (let round = 0; round < 100; round += 1) {
    write(busy, 90);
    write(calm, 10);
  }
  // Each ring has a piece that is not compressed yet.
  t.true(bytesOf(lives) <= 400_000 + 2 * 33_000, `${bytesOf(lives)} bytes`);
  const [first, other] = [timesOf(busy), timesOf(calm)];
  const keptMs = clock.now() - (lives.droppedUntilMs ?? 0);
  t.true(keptMs > 300 && keptMs < 1_000, `${keptMs} ms of 10,000 are kept`);
  t.true(Math.abs((first[0] as number) - (other[0] as number)) < 400, "neither crowds the other out");
  t.true(other.length >= 30, "the calm one keeps its share");
});

test("nothing is dropped below the limit", (t) => {
  const { begin, lives, write } = world(10_000_000);
  const life = begin("a");
  write(life, 1_000);
  t.is(lives.droppedUntilMs, null);
  t.is(timesOf(life).length, 1_000);
});

test("a life that is over is kept until the last of it is dropped", (t) => {
  const { begin, lives, write } = world(200_000);
  for (let life = 0; life < 500; life += 1) write(begin("flapping"), 5);
  // 5 kB each.
  t.true(lives.all.length > 20 && lives.all.length < 120, `${lives.all.length} of 500 lives`);
  t.true(bytesOf(lives) < 250_000, `${bytesOf(lives)} bytes`);
  t.is(timesOf(lives.all.at(-1) as RecordedLife).length, 5);
  for (const life of lives.all) t.true(timesOf(life).length > 0);
});
