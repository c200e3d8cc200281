/** The kept breakages: `npm run mutants` says which of them no test and no seed finds. */
import { dispatcherMutants } from "./list-dispatcher.ts";
import { grpcMutants } from "./list-grpc.ts";
import { ledgerMutants } from "./list-ledger.ts";
import { orchestrationMutants } from "./list-orchestration.ts";
import { storeMutants } from "./list-store.ts";
import type { Mutant } from "./mutant.ts";

export const mutants: readonly Mutant[] = [
  ...dispatcherMutants,
  ...storeMutants,
  ...ledgerMutants,
  ...orchestrationMutants,
  ...grpcMutants,
];

/**
 * A few of each part, which tests or the first two seeds find in seconds: for CI, which so notices when the measuring itself, or
 * all that looks, no longer does.
 */
export const sample: readonly string[] = [
  "silent-never-down",
  "receipts-ignored",
  "receipts-lost-with-snapshot",
  "heartbeats-not-counted",
  "readmitted-after-removal",
];
