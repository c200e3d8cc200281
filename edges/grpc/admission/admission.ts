/** What all ports of a process share of the limits on their peers: bytes, time and the count of refusals. */
import type { Telemetry } from "../../../runtime/ports.ts";
import { ByteBudget } from "./byte-budget.ts";
import * as limits from "./limits.ts";
import { Refusals } from "./refusals.ts";
import { TimeShare } from "./time-share.ts";

/** Each is described where its constant is. */
export type AdmissionLimits = {
  readonly [Name in keyof typeof limits]: number;
};

export interface Admission {
  readonly limits: AdmissionLimits;
  readonly refusals: Refusals;
  readonly anonymousBytes: ByteBudget;
  readonly knownBytes: ByteBudget;
  readonly anonymousTime: TimeShare;
}

/** One for a process. `changed`: other limits, for tests. */
export function createAdmission(
  telemetry: Pick<Telemetry, "metrics" | "log">,
  changed: Partial<AdmissionLimits> = {},
): Admission {
  const all: AdmissionLimits = { ...limits, ...changed };
  const refusals = new Refusals(telemetry);
  const refused = (reason: "anonymous-bytes" | "known-bytes" | "anonymous-time") => () =>
    refusals.count("grpc", reason, "");
  return {
    limits: all,
    refusals,
    anonymousBytes: new ByteBudget(all.anonymousBytesMax, refused("anonymous-bytes")),
    knownBytes: new ByteBudget(all.knownBytesMax, refused("known-bytes")),
    anonymousTime: new TimeShare(
      { share: all.anonymousTimeShare, burstMs: all.anonymousTimeBurstMs },
      refused("anonymous-time"),
    ),
  };
}
