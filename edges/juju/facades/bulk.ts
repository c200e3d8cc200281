/** Requests about many entities at once: each has its own result, and one that fails does not fail the others. */
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { requestErrorOf } from "../rpc-failure.ts";

export interface JsonFields {
  readonly [key: string]: Json | undefined;
}

/** More in one request is refused: each may be a write. */
const bulkMax = 1_000;

/** `{results: […]}`, in the order of what was asked. Clients take an `error` of null for one: it is left out. */
export async function bulk<Each>(
  asked: readonly Each[],
  run: (each: Each) => Promise<JsonFields> | JsonFields,
): Promise<JsonFields> {
  if (asked.length > bulkMax) throw new RequestError(`more than ${bulkMax} in one request`, "quota limit exceeded");
  const results: JsonFields[] = [];
  // One after the other: several may be about one service.
  for (const each of asked) {
    try {
      results.push(await run(each));
    } catch (error) {
      const refused = requestErrorOf(error);
      if (refused === null) throw error;
      results.push({ error: { message: refused.message, code: refused.code } });
    }
  }
  return { results };
}
