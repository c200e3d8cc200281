/**
 * The cost of the feed of actors: of a transition without an observer, with one listener, and with a listener that encodes each
 * message as an edge does, and with the ring of the last minutes; then the processor's time at 1,000 transitions a second.
 *
 * The actors are sessions of nodes whose streams break and are resumed: each transition has a guard or an action, arms or cancels
 * a timer, and changes the context. The ways take turns, since the machine is shared.
 */
import { setTimeout as pause } from "node:timers/promises";
import { createProcessFeed } from "../actors/inspection/process-feed.ts";
import { sessionMachine } from "../machines/dispatcher/session.machine.ts";
import { ActorFeed, ActorSelection } from "../proto/gen/messages.ts";
import { Host, type HostedActor } from "../runtime/host.ts";
import { RecordingRing } from "../runtime/recording/ring.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { createTelemetry } from "../runtime/telemetry/telemetry.ts";
import { percentile, table } from "./table.ts";

type Session = HostedActor<typeof sessionMachine>;
type Way = "no listener" | "one listener" | "one listener, encoded" | "ring";

const ways: readonly Way[] = ["no listener", "one listener", "one listener, encoded", "ring"];
const sessions = 500;
const perSecond = 1_000;
/** As often as a manager's event loop turns under such a load. */
const everyMs = 10;

const none = (): void => {};
const effects = {
  register: none,
  sendSessionMessage: none,
  announceRegistration: none,
  confirmReady: none,
  requestVerdict: none,
  declareDown: none,
  countHeartbeats: none,
  endSession: none,
};

export async function inspectionTable(isShort: boolean): Promise<string> {
  const turns = isShort ? 1 : 7;
  const burst = isShort ? 2_000 : 20_000;
  const rateMs = isShort ? 300 : 4_000;
  const clock = new SystemClock();
  const telemetry = await createTelemetry({ service: "bench", level: "silent", otlpEndpoint: undefined });
  const host = new Host({
    clock,
    telemetry,
    onCrash: (id, error) => {
      throw new Error(`${id} crashed`, { cause: error });
    },
  });
  const feed = createProcessFeed({ host, clock, telemetry, process: "manager-bench", hostname: "bench" });
  const actors = Array.from({ length: sessions }, (_, at) => newSession(host, at));
  let heard = 0;
  // Small enough that it drops pieces all the time.
  const ring = new RecordingRing(256 * 1024);
  const listening: Readonly<Record<Way, () => (() => void) | null>> = {
    "no listener": () => null,
    "one listener": () => listen((message) => void (heard += message.steps.length)),
    "one listener, encoded": () => listen((message) => void (heard += ActorFeed.encode(message).length)),
    ring: () => {
      const recording = feed.record(ring);
      return () => recording.unsubscribe();
    },
  };
  const listen = (onFeed: (message: ActorFeed) => void): (() => void) => {
    const handle = feed.listen(ActorSelection.create(), { ready: () => true, onFeed });
    return () => handle.close();
  };

  const stepNs: Record<Way, number[]> = {
    "no listener": [],
    "one listener": [],
    "one listener, encoded": [],
    ring: [],
  };
  const shares: Record<Way, number[]> = {
    "no listener": [],
    "one listener": [],
    "one listener, encoded": [],
    ring: [],
  };
  let next = 0;
  const step = (): void => {
    const actor = actors[next % sessions] as Session;
    const at = clock.now();
    if (Math.floor(next / sessions) % 2 === 0) actor.send({ type: "stream.broken", at, graceMs: 15_000 });
    else actor.send({ type: "session.resumed", at, graceMs: 15_000, changed: false });
    next += 1;
  };
  /** Processor time of this process in microseconds, while `work` runs. */
  const used = async (work: () => Promise<void>): Promise<number> => {
    const before = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  for (let turn = 0; turn <= turns; turn += 1)
    for (const way of ways) {
      const end = listening[way]();
      // The snapshot is over.
      await pause(200);
      const burstUs = await used(async () => {
        // A flush follows each 50 ms, as at the rate below.
        for (let done = 0; done < burst; done += 500) {
          for (let at = 0; at < 500; at += 1) step();
          await pause(0);
        }
        await pause(60);
      });
      const rateUs = await used(() => atRate(step, rateMs));
      end?.();
      // The first turn warms up.
      if (turn === 0) continue;
      stepNs[way].push((burstUs / burst) * 1_000);
      shares[way].push(rateUs / rateMs / 10);
    }
  host.stopAll();
  if (heard === 0) throw new Error("the listener heard nothing");
  const middle = (values: readonly number[]): number => percentile(values, 0.5);
  const span = (values: readonly number[]): string =>
    `${Math.min(...values).toFixed(1)}–${Math.max(...values).toFixed(1)}`;
  const rows = ways.map((way) => [
    way,
    `${(middle(stepNs[way]) / 1_000).toFixed(1)} µs`,
    `${(middle(stepNs[way]) / middle(stepNs["no listener"])).toFixed(2)}`,
    `${middle(shares[way]).toFixed(2)} % (${span(shares[way])})`,
    `${(middle(shares[way]) - middle(shares["no listener"])).toFixed(2)} points`,
  ]);
  return table(
    `Watching actors (${turns} turns, medians)`,
    ["way", "CPU per transition, in bursts", "ratio", `CPU at ${perSecond} transitions/s, of one core`, "more"],
    rows,
  );
}

function newSession(host: Host, at: number): Session {
  const nodeId = `node${at}`;
  const input = { nodeId, sessionId: `session${at}`, at: 0, adopted: false, unknownGraceMs: 60_000, graceMs: 15_000 };
  const actor = host.start(sessionMachine, `session/${nodeId}`, input, { effects });
  actor.send({ type: "registration.committed", at: 0, graceMs: 15_000 });
  return actor;
}

async function atRate(step: () => void, ms: number): Promise<void> {
  const startedAt = performance.now();
  for (let done = 0; ;) {
    const elapsedMs = performance.now() - startedAt;
    for (; done < (elapsedMs * perSecond) / 1_000; done += 1) step();
    if (elapsedMs >= ms) return;
    await pause(everyMs);
  }
}
