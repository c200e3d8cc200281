/** Follows the feed of actors until the command is interrupted; connects again after the connection is lost. */
import { backoffMs, type Backoff } from "../../lib/backoff.ts";
import type { Actors } from "../../proto/feed/actors.ts";
import type { ActorSelection } from "../../proto/gen/messages.ts";
import { UserError } from "../../lib/user-error.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { Shell } from "../shell.ts";
import { watchActors, type News } from "./feed.ts";
import { stuckFor } from "./listing.ts";

/** Milliseconds between connections, as on the page: soon at first, and never longer than an operator who watches accepts. */
const retries: Backoff = { stepMs: 500, msMax: 10_000 };
/** Milliseconds between looks for actors that have become stuck, and between redraws of countdowns. */
const tickMs = 500;

/** Another connection cannot help. */
const final: readonly Status[] = [
  Status.INVALID_ARGUMENT,
  Status.NOT_FOUND,
  Status.PERMISSION_DENIED,
  Status.UNAUTHENTICATED,
  Status.UNIMPLEMENTED,
];

export type Followed =
  | News
  /** A timer of the actor is overdue, and was not when last looked. */
  | { readonly kind: "stuck"; readonly process: string; readonly actor: string; readonly overdueMs: number }
  | { readonly kind: "disconnected"; readonly reason: string; readonly retryMs: number }
  | { readonly kind: "connected" };

export interface Follower {
  readonly actors: Actors;
  onNews(news: Followed): void;
  /** Twice a second, and when the connection is lost. */
  onTick(): void;
}

/** Resolves at the first of the signals that end a command. */
export function interruption(): { readonly signalled: Promise<void>; forget(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  const onSignal = (): void => resolve();
  for (const signal of signals) process.on(signal, onSignal);
  return {
    signalled: promise,
    forget() {
      for (const signal of signals) process.off(signal, onSignal);
    },
  };
}

/**
 * `first`: an open connection, which is closed in the end. Throws what another connection cannot mend. `failed`: resolves with an error
 * that ends the command.
 */
export async function follow(
  shell: Shell,
  first: RpcChannel,
  selection: ActorSelection,
  follower: Follower,
  failed: Promise<UserError> = new Promise(() => undefined),
): Promise<void> {
  const { actors } = follower;
  const { signalled, forget } = interruption();
  const ended = Promise.race([signalled.then(() => null), failed]);
  let channel: RpcChannel | null = first;
  let failures = 0;
  const stuck = new Set<string>();

  function lookForStuck(): void {
    for (const process of actors.processes.values())
      for (const actor of process.actors.values()) {
        const key = `${process.id}\n${actor.id}`;
        const overdueMs = stuckFor(actor, process, shell.now() + process.skewMs);
        if (overdueMs === 0) stuck.delete(key);
        else if (!stuck.has(key)) {
          stuck.add(key);
          follower.onNews({ kind: "stuck", process: process.id, actor: actor.id, overdueMs });
        }
      }
    follower.onTick();
  }
  const ticks = setInterval(lookForStuck, tickMs);

  try {
    for (;;) {
      let failure: Error | null;
      try {
        channel ??= await shell.connect();
        if (failures > 0) follower.onNews({ kind: "connected" });
        const watch = watchActors({
          channel,
          selection,
          actors,
          now: () => shell.now(),
          onNews(news) {
            failures = 0;
            follower.onNews(news);
          },
        });
        failure = await Promise.race([watch.ended, ended]);
        watch.cancel();
      } catch (error) {
        failure = error as Error;
      }
      channel?.close();
      channel = null;
      if (failure === null) return;
      if (failure === (await Promise.race([failed, Promise.resolve(null)]))) throw failure;
      const isPassing = failure instanceof UserError || (failure instanceof RpcError && !final.includes(failure.code));
      if (!isPassing) throw failure;
      actors.disconnected();
      failures += 1;
      const retryMs = backoffMs(retries, failures);
      follower.onNews({ kind: "disconnected", reason: failure.message, retryMs });
      follower.onTick();
      const waited = Promise.withResolvers<"waited">();
      const timer = setTimeout(() => waited.resolve("waited"), retryMs);
      const outcome = await Promise.race([waited.promise, ended]);
      clearTimeout(timer);
      if (outcome === null) return;
      if (outcome !== "waited") throw outcome;
    }
  } finally {
    clearInterval(ticks);
    forget();
    channel?.close();
  }
}
