/**
 * The leader's part of the log's format: raises its level once every manager knows a higher one (`proto/format-level.ts`). The ledger
 * checks that again when it writes (P11).
 */
import { formatId, levelOf, managersBelow } from "../../proto/format-level.ts";
import { Format, type Operation } from "../../proto/gen/messages.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { Store } from "../../runtime/store/store.ts";
import { commit, creation, replacement } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";

/** Delay before a failed write is repeated, in milliseconds. */
const retryMs = 5_000;

/** `level`: the highest that this manager knows. Its writes must be those of a term. */
export function startFormatLevel(env: Environment, level: number): Running {
  const { clock, store, telemetry } = env;
  let timer: TimerHandle | null = null;
  let isBusy = false;
  let stopped = false;

  function look(): void {
    if (isBusy || stopped || levelOf(store.get("format", formatId)) >= level) return;
    if (managersBelow(store.all("manager"), level).length > 0) return;
    isBusy = true;
    commit(env, { traceparent: "" }, raise()).then(
      () => {
        isBusy = false;
        telemetry.log.info({ level }, "every manager knows a higher level of the log's format: raised it");
      },
      (error: unknown) => {
        telemetry.log.warn({ err: error, level }, "cannot raise the level of the log's format yet");
        timer = clock.setTimeout(() => {
          isBusy = false;
          look();
        }, retryMs);
      },
    );
  }

  function raise(): Operation {
    const format = store.get("format", formatId);
    return format === undefined
      ? creation("format", Format.create({ id: formatId, level }))
      : replacement("format", Format.patch(format, { level }));
  }

  const watching = store.watch(({ changes }) => {
    if (changes.some(({ table }) => table === "manager")) look();
  });
  look();
  return {
    stop() {
      stopped = true;
      watching.unsubscribe();
      if (timer !== null) clock.clearTimeout(timer);
    },
  };
}

/** The managers that keep the level below the one that this manager knows, in sentences for its operator. */
export function levelWarnings(store: Store, level: number): readonly string[] {
  if (levelOf(store.get("format", formatId)) >= level) return [];
  const below = managersBelow(store.all("manager"), level);
  if (below.length === 0) return [];
  const names = below.map(({ id }) => {
    const description = store.get("node", id)?.description;
    const version = description?.engine?.engineVersion ?? "";
    return `${description?.hostname || id}${version === "" ? "" : ` (${version})`}`;
  });
  return [
    `The log's format stays at level ${levelOf(store.get("format", formatId))} until every manager runs a version that knows level ${level}: upgrade ${names.join(", ")}, or demote and remove those that are gone.`,
  ];
}
