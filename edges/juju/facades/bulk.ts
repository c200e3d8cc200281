/** Bulk requests: each entity has its own result, and one failure does not affect the others. */
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { requestErrorOf } from "../rpc-failure.ts";

export interface JsonFields {
  readonly [key: string]: Json | undefined;
}

/** Maximum number of entities in a request; each may be a write. */
const bulkMax = 1_000;

/** `{results: […]}`, in the order of the request. Clients treat a null `error` as an error, so it is omitted. */
export async function bulk<Each>(
  asked: readonly Each[],
  run: (each: Each) => Promise<JsonFields> | JsonFields,
): Promise<JsonFields> {
  if (asked.length > bulkMax) throw new RequestError(`more than ${bulkMax} in one request`, "quota limit exceeded");
  const results: JsonFields[] = [];
  // One after the other, because several may change one service.
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
