/** `muster login` gets a certificate for a context's user; `muster logout` removes it from this machine. */
import { LoginRequest, UserCertificatesService } from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";
import { createKeyAndCsr } from "../lib/pki/index.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import { command, type Command } from "./command.ts";
import { currentContext, readContexts, type Context } from "./contexts.ts";
import { connectToLogIn } from "./remote/connect.ts";
import { forgetCredentials, saveCredentials, saveRoots } from "./remote/credentials.ts";
import { lifetimeOption, lifetimeSeconds } from "./remote/lifetime.ts";
import { askPassword } from "./remote/password.ts";
import { secretFrom } from "./secret-file.ts";
import { NotThereError, UserError } from "../lib/user-error.ts";

/** Checking a password takes about 0.1 s, and others may be queued; in milliseconds. */
const loginTimeoutMs = 30_000;

function remoteContext(named: string | undefined): { readonly name: string; readonly context: Context } {
  const name = named ?? currentContext() ?? "";
  if (name === "")
    throw new UserError("MUSTER_HOST is set and overrides the current context: name the context to log in to");
  const context = readContexts().named.get(name);
  if (context === undefined && named !== undefined)
    throw new NotThereError(`context "${name}" not found: see 'muster context ls'`);
  if (context?.user === undefined)
    throw new UserError(
      `context "${name}" is a control socket on this machine and needs no login: ` +
        "use a context that was created with --user",
    );
  return { name, context };
}

export const login: Command = command({
  operands: "[CONTEXT]",
  max: 1,
  summary: "Log in to the manager of a context with the password of its user.",
  options: {
    "password-file": {
      type: "string",
      value: "FILE",
      help: "File whose first line is the password, - for standard input (default: ask at the terminal)",
    },
    lifetime: lifetimeOption,
  },
  completes: [],
  run: async ({ values, operands, shell }) => {
    const { name, context } = remoteContext(operands[0]);
    const { user = "" } = context;
    const seconds = lifetimeSeconds(values.lifetime);
    const file = values["password-file"];
    // Connect before asking for the password: it must only go to the verified manager.
    const channel = await connectToLogIn(name, context);
    try {
      const password = file === undefined ? await askPassword(`Password of ${user}: `) : secretFrom(file, "password");
      const { keyPem, csrPem } = await createKeyAndCsr();
      const csr = new TextEncoder().encode(csrPem);
      const request = LoginRequest.create({ name: user, password, csr, lifetimeSeconds: seconds });
      const response = await channel
        .unary(UserCertificatesService.methods.Login, request, { timeoutMs: loginTimeoutMs })
        .catch((error: unknown) => {
          if (error instanceof RpcError && error.code === Status.UNAUTHENTICATED)
            throw new UserError(`login of ${user} failed: ${error.message}`, { cause: error });
          throw error;
        });
      const text = new TextDecoder();
      saveRoots(name, text.decode(response.rootCertificates));
      saveCredentials(name, { keyPem, certificatePem: text.decode(response.certificate) });
      shell.print(`Logged in as ${user} until ${new Date(timeMs(response.notAfter)).toISOString()}`);
    } finally {
      channel.close();
    }
  },
});

export const logout: Command = command({
  operands: "[CONTEXT]",
  max: 1,
  summary: "Remove the certificate and key of a context from this machine.",
  options: {},
  completes: [],
  run: ({ operands, shell }) => {
    const { name, context } = remoteContext(operands[0]);
    shell.print(
      forgetCredentials(name) ? `Logged out ${context.user ?? ""}` : `${context.user ?? ""} was not logged in`,
    );
    return Promise.resolve();
  },
});
