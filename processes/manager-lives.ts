/**
 * A manager process as a sequence of lives, each as after a crash: a manager whose log moves to another NATS ends and starts
 * again within its process, and so does one that has no NATS yet.
 */
import { setTimeout as sleep } from "node:timers/promises";
import {
  inOneSentence,
  startManagerLife,
  type Life,
  type ManagerProcess,
  type ManagerProcessOptions,
} from "./manager.ts";
import { NatsAway } from "./managers-nats.ts";
import { unlessEnding, type Starting } from "./signals.ts";

/** Pause before a manager whose NATS is away tries again, in milliseconds: its attempts themselves take seconds. */
const retryMs = 1_000;

/** Throws UserError with a remedy, and Interrupted. */
export function startManagerProcess(options: ManagerProcessOptions, starting: Starting): Promise<ManagerProcess> {
  const { log } = options.telemetry;
  return startLives(
    (life) => startManagerLife(options, life),
    starting,
    (error) => log.warn({ reason: error.message }, "the cluster's NATS is away: trying again"),
  );
}

/** `start` begins one life. `onAway` is called before each further attempt of a manager whose NATS is away. */
export async function startLives(
  start: (life: Life) => Promise<ManagerProcess>,
  { onBroken, ending }: Starting,
  onAway: (error: NatsAway) => void,
  pauseMs = retryMs,
): Promise<ManagerProcess> {
  /** The keys of the last life: on the disk they may be locked. */
  const kept: Life["kept"] = { vault: null };
  let isStopped = false;
  const stopping = new AbortController();
  const begin = async (): Promise<ManagerProcess> => {
    for (;;) {
      const restarting = new AbortController();
      const life: Life = {
        kept,
        restart: () => restarting.abort(),
        onBroken: (error) => {
          if (!restarting.signal.aborted) onBroken(error);
        },
        ending: AbortSignal.any([ending, stopping.signal, restarting.signal]),
      };
      try {
        const started = await start(life);
        restarting.signal.addEventListener("abort", () => replace(started), { once: true });
        if (restarting.signal.aborted) replace(started);
        return started;
      } catch (error) {
        const ended = AbortSignal.any([ending, stopping.signal]);
        if (restarting.signal.aborted && !ended.aborted) continue;
        if (!(error instanceof NatsAway)) throw error;
        onAway(error);
        await unlessEnding(sleep(pauseMs), ended);
      }
    }
  };
  /** Resolves once the last life has ended and the next one has started. */
  let replacing: Promise<void> = Promise.resolve();
  function replace(life: ManagerProcess): void {
    replacing = replacing
      .then(() => life.stop())
      .then(async () => {
        if (!isStopped) current = await begin();
      })
      .catch((error: unknown) => {
        if (!isStopped) onBroken(inOneSentence(error));
      });
  }
  let current: ManagerProcess = await begin();
  return {
    get manager() {
      return current.manager;
    },
    get advertise() {
      return current.advertise;
    },
    get controlSocket() {
      return current.controlSocket;
    },
    get warnings() {
      return current.warnings;
    },
    stop: async () => {
      isStopped = true;
      stopping.abort();
      await replacing;
      await current.stop();
    },
  };
}
