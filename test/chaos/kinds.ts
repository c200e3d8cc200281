/** All kinds of faults. */
import type { Kind } from "./fault.ts";
import { processKinds } from "./faults-process.ts";

export const kinds: readonly Kind[] = [...processKinds];
