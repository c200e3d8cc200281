/** The flags by which a joining process gets its token. */
import { UsageError } from "../command.ts";
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
      help: `Token with which ${role}s join, as 'muster token ${role}' prints it; prefer --token-file`,
    },
    "token-file": {
      type: "string",
      value: "FILE",
      help: "File whose first line is the token; - reads standard input",
      completes: "file",
    },
  } as const;
}

/** Undefined when neither is given. Throws UsageError, and UserError for a file that cannot be used. */
export function tokenOf({ token, "token-file": file }: TokenValues): string | undefined {
  if (token !== undefined && file !== undefined) throw new UsageError("give --token or --token-file, not both");
  return file === undefined ? token : secretFrom(file, "token");
}
