/**
 * Polls `/healthz` of every manager twice a second and compares it with the writers' results: a manager that reports healthy
 * must accept a write within its detection time, and one that reports unhealthy must not keep accepting writes.
 */
import type { Place } from "./place.ts";
import type { Writers } from "./writers.ts";

const periodMs = 500;
const answerMsMax = 2_000;
/** A manager notices within three probes, each with its pause (`staleMs` in actors/manager/progress.ts). */
const detectionMs = 16_500;
/** Slack for a busy machine: late calls and samples are not wrong reports. */
const toleranceMs = 15_000;
/** A manager accepts writes if its last successful one is no older than this. */
const recentMs = 3_000;

interface Seen {
  says: "healthy" | "unhealthy" | "nothing";
  /** Since when its report has not changed and writes are attempted. */
  sinceMs: number;
  /** Since when the newest write has always been recent. */
  takesSinceMs: number;
}

export class HealthWatch {
  readonly #lies: string[] = [];
  readonly #seen = new Map<string, Seen>();
  readonly #writers: Writers;
  #isStopped = false;
  readonly #work: Promise<unknown>;
  #sampledAt = performance.now();

  constructor(managers: readonly Place[], urlOf: (manager: Place) => string, writers: Writers) {
    this.#writers = writers;
    const now = performance.now();
    for (const { name } of managers) this.#seen.set(name, { says: "nothing", sinceMs: now, takesSinceMs: now });
    this.#work = this.#run(managers, urlOf);
  }

  /** Sentences about wrong reports since the last call. */
  lies(): string[] {
    return this.#lies.splice(0);
  }

  /** The manager's last report. */
  says(manager: Place): Seen["says"] {
    return this.#seen.get(manager.name)?.says ?? "nothing";
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#work;
  }

  async #run(managers: readonly Place[], urlOf: (manager: Place) => string): Promise<void> {
    while (!this.#isStopped) {
      const answers = await Promise.all(managers.map((manager) => askHealth(urlOf(manager))));
      const now = performance.now();
      // This process itself stalled, or writers were paused: the unobserved time proves nothing.
      const isBlind = !this.#writers.isWriting || now - this.#sampledAt > answerMsMax + 4 * periodMs;
      this.#sampledAt = now;
      for (const [at, { name }] of managers.entries()) this.#judge(name, answers[at] ?? "nothing", now, isBlind);
      await new Promise((resolve) => setTimeout(resolve, periodMs));
    }
  }

  #judge(name: string, says: Seen["says"], now: number, isBlind: boolean): void {
    const seen = this.#seen.get(name);
    if (seen === undefined) return;
    const isNew = says !== seen.says || isBlind;
    if (isNew) seen.sinceMs = now;
    seen.says = says;
    const wroteAt = this.#writers.lastAt(name);
    if (isBlind || now - wroteAt > recentMs) seen.takesSinceMs = now;
    const limitMs = detectionMs + toleranceMs;
    const idleMs = now - Math.max(wroteAt, seen.sinceMs);
    const busyMs = now - Math.max(seen.takesSinceMs, seen.sinceMs);
    if (says === "healthy" && idleMs > limitMs)
      this.#report(seen, now, `${name} reports healthy, but no write has succeeded there for ${seconds(idleMs)}`);
    if (says === "unhealthy" && busyMs > limitMs)
      this.#report(seen, now, `${name} reports unhealthy, but has accepted writes for ${seconds(busyMs)}`);
  }

  #report(seen: Seen, now: number, lie: string): void {
    this.#lies.push(lie);
    // Once for each such period.
    seen.sinceMs = now;
  }
}

/** The `/healthz` answer of a manager or an agent. */
export async function askHealth(url: string): Promise<Seen["says"]> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(answerMsMax) });
    await answer.arrayBuffer();
    return answer.status === 200 ? "healthy" : "unhealthy";
  } catch {
    return "nothing";
  }
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}
