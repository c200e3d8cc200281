/** All mutants: `npm run mutants` reports which of them no test and no seed finds. */
import { dispatcherMutants } from "./list-dispatcher.ts";
import { grpcMutants } from "./list-grpc.ts";
import { ledgerMutants } from "./list-ledger.ts";
import { orchestrationMutants } from "./list-orchestration.ts";
import { roundMutants } from "./list-rounds.ts";
import { storeMutants } from "./list-store.ts";
import type { Mutant } from "./mutant.ts";

export const mutants: readonly Mutant[] = [
  ...dispatcherMutants,
  ...storeMutants,
  ...ledgerMutants,
  ...orchestrationMutants,
  ...grpcMutants,
  ...roundMutants,
];

/**
 * A few from each part, which tests or the first eight seeds find in seconds: CI runs them to notice when the measurement itself,
 * or a whole kind of test, stops working.
 */
export const sample: readonly string[] = [
  "silent-never-down",
  "receipts-ignored",
  "receipts-lost-with-snapshot",
  "heartbeats-not-counted",
  "readmitted-after-removal",
];
