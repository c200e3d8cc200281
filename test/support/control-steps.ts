/**
 * Requests to Control: our answers are kept in a transcript (test/model/control-answers.txt), and a stock swarmd gets the same
 * requests (test/interop/control-same-as-stock.test.ts). Where ours differs on purpose, the step states both.
 */
import type { StepGroup } from "./control-side.ts";
import { objectSteps } from "./control-steps-objects.ts";
import { serviceSteps } from "./control-steps-services.ts";

export const controlSteps: readonly StepGroup[] = [...objectSteps, ...serviceSteps];
