/** Flags for the token of a joining process. */
import { UsageError } from "../../lib/user-error.ts";
import { secretFrom } from "../secret-file.ts";

export interface TokenValues {
  readonly token?: string | undefined;
  readonly "token-file"?: string | undefined;
}

export function tokenFlags(role: "worker" | "manager") {
  return {
    token: {
      type: "string",
      value: "TOKEN",
      excludes: "token-file",
      help: `Token with which ${role}s join, as 'muster token ${role}' prints it; prefer --token-file`,
    },
    "token-file": {
      type: "string",
      value: "FILE",
      help: "File whose first line is the token; - reads standard input",
      completes: "file",
      excludes: "token",
      credential: { name: "token", for: "join" },
    },
  } as const;
}

/** Undefined when neither is set. Throws UsageError, and UserError for an unusable file. */
export function tokenOf({ token, "token-file": file }: TokenValues): string | undefined {
  if (token !== undefined && file !== undefined)
    throw new UsageError("--token and --token-file are mutually exclusive");
  return file === undefined ? token : secretFrom(file, "token");
}
