/**
 * Requests to Control: of ours the answers are kept in a transcript (test/model/control-answers.txt), and a stock swarmd is
 * asked the same (test/interop/control-same-as-stock.test.ts). Where ours is another on purpose, the step says both.
 */
import type { StepGroup } from "./control-side.ts";
import { objectSteps } from "./control-steps-objects.ts";
import { serviceSteps } from "./control-steps-services.ts";

export const controlSteps: readonly StepGroup[] = [...objectSteps, ...serviceSteps];
