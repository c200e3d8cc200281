/** Sentences for calls that fail. */
import { CallError, LostCallError } from "../call-error.ts";

/** A sentence with what to do, for a reader who has just asked for `what`, such as `scale web`. */
export function failureText(what: string, error: unknown): string {
  if (!(error instanceof CallError)) return `Cannot ${what}: ${error instanceof Error ? error.message : String(error)}`;
  if (error instanceof LostCallError)
    return `The connection was lost before the answer to '${what}'. It may or may not have been done: look at the state when the page is connected again.`;
  if (error.isConflict)
    return `Cannot ${what}: it was changed in the meantime. Nothing was done; make a new plan from its present state.`;
  if (error.isDenied && !error.message.includes("permission denied"))
    return `Cannot ${what}: permission denied: ${error.message}`;
  return `Cannot ${what}: ${error.message}`;
}
