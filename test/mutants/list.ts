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
