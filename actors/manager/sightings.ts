/**
 * Records when this manager's replica received the changes from which durations are measured (`machines/manager/sightings.ts`).
 */
import type { LogTimes } from "../../machines/elapsed.ts";
import { Sightings, type Intake } from "../../machines/manager/sightings.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import type { Running } from "../environment.ts";

interface SightingsPart extends Running {
  readonly times: LogTimes;
}

/**
 * To be started before the parts that measure: it must receive a commit first. `isFollowing`: whether the log's end was
 * reached.
 */
export function startSightings(store: Store, clock: Clock, isFollowing: () => boolean): SightingsPart {
  const read = () => ({ wall: clock.now(), monotonic: clock.monotonic() });
  const sightings = new Sightings(read);
  const note = (commit: Commit): void => {
    // A snapshot contains earlier changes, as do records read on the way to the log's end.
    const { time, writer = "" } = commit;
    const intake: Intake = { ...read(), writer, isLive: writer !== "" && isFollowing() };
    sightings.noteRecord(time, intake);
    for (const change of commit.changes) {
      const isGone = change.action === "remove";
      switch (change.table) {
        case "task":
          if (isGone) sightings.forget(change.object.id, ["madeMs", "reachedMs"]);
          else sightings.noteTask(change.object, intake);
          break;
        case "node":
          if (isGone) sightings.forget(change.object.id, ["changedMs"]);
          else sightings.noteNode(change.object, intake);
          break;
        case "rollout":
          if (isGone) sightings.forget(change.object.id, ["countedMs"]);
          else sightings.noteRollout(change.object, intake);
          break;
        case "service":
          if (isGone) sightings.forget(change.object.id, ["executedMs"]);
          else sightings.noteService(change.object, intake);
          break;
        default:
      }
    }
  };
  const watch = store.watch(note);
  return { times: sightings, stop: () => watch.unsubscribe() };
}
