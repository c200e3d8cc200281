/**
 * What a manager that gets nothing done says of the bus and of who leads: the names of the causes, from what it can see.
 *
 * H3: without a leader nobody is healthy. A change of leader is given `leaderlessMsMax`, since every one passes through it.
 * H4: fewer than a majority of the named servers that answer is a cause at once, whatever else still seems to work: the log
 *     cannot be written without it.
 */
import { Trouble_Kind } from "../../proto/gen/messages.ts";

/** A change of leader takes 6 s at most (the lease's 3 s, two looks at it, the barrier), in milliseconds. */
export const leaderlessMsMax = 6_000;

export interface BusSight {
  /** Whether this manager's link to the bus answers its pings. */
  readonly isUp: boolean;
  /** Servers that this manager was told of, and how many of them greet; 0 named: it does not know. */
  readonly named: number;
  readonly answering: number;
  /** Whether the log has told its end, and the bucket of leases its leader's key. */
  readonly logAnswers: boolean;
  readonly leasesAnswer: boolean;
  /** For how long no leader has been heard, in milliseconds; 0: one is. */
  readonly leaderlessMs: number;
  /** The time of day since when, as text. */
  readonly leaderlessSince: string;
}

export interface BusTrouble {
  readonly kind: Trouble_Kind;
  readonly sentence: string;
}

/** The kinds that `busTroubles` decides about: what it does not return of these is over. */
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
    // A server that is alone leads what it has: what does not answer there has another reason.
    const has = mute.length === 1 ? "has" : "have";
    const what = named === 1 ? (mute.length === 1 ? "does not answer" : "do not answer") : `${has} no leader in NATS`;
    const seen = named === 0 ? "" : `, though ${answer}`;
    troubles.push({ kind: Trouble_Kind.NO_MAJORITY, sentence: `${mute.join(" and ")} ${what}${seen}` });
  }
  if (leaderlessMs > leaderlessMsMax)
    troubles.push({ kind: Trouble_Kind.NO_LEADER, sentence: `no manager leads since ${leaderlessSince}` });
  return troubles;
}
