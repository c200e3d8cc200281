/** Limits on peers that all ports of a process share: bytes, time, and the count of refusals. */
import type { Telemetry } from "../../../runtime/ports/index.ts";
import { ByteBudget } from "./byte-budget.ts";
import { CallTurns } from "./call-turns.ts";
import * as limits from "./limits.ts";
import { Refusals } from "./refusals.ts";
import { TimeShare } from "./time-share.ts";

/** Each limit is described at its constant. */
export type AdmissionLimits = {
  readonly [Name in keyof typeof limits]: number;
};

export interface Admission {
  readonly limits: AdmissionLimits;
  readonly refusals: Refusals;
  readonly anonymousBytes: ByteBudget;
  readonly knownBytes: ByteBudget;
  readonly anonymousTime: TimeShare;
  readonly largeMessageTime: TimeShare;
  readonly callTurns: CallTurns;
}

/** Create one per process. `changed` overrides limits, for tests. */
export function createAdmission(
  telemetry: Pick<Telemetry, "metrics" | "log">,
  changed: Partial<AdmissionLimits> = {},
): Admission {
  const all: AdmissionLimits = { ...limits, ...changed };
  const refusals = new Refusals(telemetry);
  const waiting = telemetry.metrics.gauge("muster_grpc_waiting_calls", "Calls that wait for their turn, by class.");
  const { anonymousTimeShare, anonymousTimeBurstMs, largeMessageTimeShare, largeMessageTimeBurstMs } = all;
  return {
    limits: all,
    refusals,
    anonymousBytes: new ByteBudget(all.anonymousBytesMax),
    knownBytes: new ByteBudget(all.knownBytesMax),
    anonymousTime: new TimeShare({ share: anonymousTimeShare, burstMs: anonymousTimeBurstMs }, () =>
      refusals.count("grpc", "anonymous-time", ""),
    ),
    largeMessageTime: new TimeShare({ share: largeMessageTimeShare, burstMs: largeMessageTimeBurstMs }, () =>
      refusals.count("json", "large-message-time", ""),
    ),
    callTurns: new CallTurns(all, (of, count) => waiting.set(count, { class: of })),
  };
}
