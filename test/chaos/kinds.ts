/** All kinds of faults. */
import type { Kind } from "./fault.ts";
import { clockKinds } from "./faults-clock.ts";
import { diskKinds } from "./faults-disk.ts";
import { networkKinds } from "./faults-network.ts";
import { processKinds } from "./faults-process.ts";

export const kinds: readonly Kind[] = [...processKinds, ...networkKinds, ...diskKinds, ...clockKinds];
