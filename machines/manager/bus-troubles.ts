/**
 * Why a manager makes no progress: the troubles that it reports about the bus and the leader, from what it observes.
 *
 * H3: without a leader no manager is healthy. A change of leader gets `leaderlessMsMax`, because every change goes through
 *     it.
 * H4: if fewer than a majority of the configured servers answer, that is a cause at once, whatever else still seems to work:
 *     the log cannot be written without a majority.
 */
import { Trouble_Kind } from "../../proto/gen/messages.ts";

/** In milliseconds. A change of leader takes at most 6 s (the lease's 3 s, two reads of it, the barrier). */
const leaderlessMsMax = 6_000;

export interface BusSight {
  /** Whether this manager's link to the bus answers pings. */
  readonly isUp: boolean;
  /** Configured servers, and how many of them answer; 0 configured: unknown. */
  readonly named: number;
  readonly answering: number;
  /** Whether the log answers requests for its end, and the lease bucket requests for its key. */
  readonly logAnswers: boolean;
  readonly leasesAnswer: boolean;
  /** How long no leader has been heard, in milliseconds; 0: there is one. */
  readonly leaderlessMs: number;
  /** Since when, as text. */
  readonly leaderlessSince: string;
}

interface BusTrouble {
  readonly kind: Trouble_Kind;
  readonly sentence: string;
}

/** The kinds that `busTroubles` decides: those that it does not return are over. */
export const busTroubleKinds = [Trouble_Kind.NO_LINK, Trouble_Kind.NO_MAJORITY, Trouble_Kind.NO_LEADER] as const;

export function busTroubles(sight: BusSight): readonly BusTrouble[] {
  const { answering, isUp, leaderlessMs, leaderlessSince, leasesAnswer, logAnswers, named } = sight;
  const troubles: BusTrouble[] = [];
  const answer = `${answering} of ${named} ${named === 1 ? "server" : "servers"} ${answering === 1 ? "answers" : "answer"}`;
  if (named > 1 && 2 * answering <= named) {
    troubles.push({ kind: Trouble_Kind.NO_MAJORITY, sentence: `NATS has no majority: ${answer}` });
  } else if (!isUp) {
    const seen = named === 0 ? "" : answering === 0 ? ", no server answers" : `, though ${answer}`;
    troubles.push({ kind: Trouble_Kind.NO_LINK, sentence: `the link to NATS is down${seen}` });
  } else if (!logAnswers || !leasesAnswer) {
    const mute = [...(logAnswers ? [] : ["the log"]), ...(leasesAnswer ? [] : ["the bucket of leases"])];
    // A standalone server is its own leader: if it does not answer, there is another reason.
    const has = mute.length === 1 ? "has" : "have";
    const what = named === 1 ? (mute.length === 1 ? "does not answer" : "do not answer") : `${has} no leader in NATS`;
    const seen = named === 0 ? "" : `, though ${answer}`;
    troubles.push({ kind: Trouble_Kind.NO_MAJORITY, sentence: `${mute.join(" and ")} ${what}${seen}` });
  }
  if (leaderlessMs > leaderlessMsMax)
    troubles.push({ kind: Trouble_Kind.NO_LEADER, sentence: `no manager leads since ${leaderlessSince}` });
  return troubles;
}
