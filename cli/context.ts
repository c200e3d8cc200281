/** `muster context`: create, use, ls, show, rm. A context is a name for a manager. */
import { command, listingOptions, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { contentFrom } from "./content.ts";
import { currentContext, defaultContext, readContexts, writeContexts, type Context } from "./contexts.ts";
import { knownHosts } from "../processes/last-host.ts";
import { eachOperand } from "./operands.ts";
import { formatHostPort } from "../processes/addresses.ts";
import { socketPath } from "./shell.ts";
import { printListing } from "./table.ts";
import { NotThereError, UserError } from "../lib/user-error.ts";

/** Docker's rule for names of contexts. */
const namePattern = /^[a-zA-Z0-9][a-zA-Z0-9_.+-]+$/;

const create = command({
  operands: "CONTEXT",
  min: 1,
  max: 1,
  summary: "Name a manager by its control socket, or one on another machine by its address and a user.",
  options: {
    host: {
      type: "string",
      value: "ADDRESS",
      help: "Manager of the context: unix:///PATH/control.sock, or tcp://ADDR:PORT on another machine",
    },
    user: { type: "string", value: "NAME", help: "User that logs in there (only with tcp://)" },
    ca: {
      type: "string",
      value: "FILE",
      help: "Root certificate of the cluster (PEM), as 'muster ca' prints it (only with tcp://)",
    },
    "ca-digest": {
      type: "string",
      value: "DIGEST",
      help: "Digest of the root certificate, as 'muster ca --digest' prints it: the manager is asked for the certificate (only with tcp://)",
    },
    credentials: {
      type: "string",
      value: "FILE",
      help: "Certificate and key from 'muster user certificate', instead of a login (only with tcp://)",
    },
    description: { type: "string", value: "TEXT", help: "Description of the context" },
  },
  completes: [],
  run: async ({ values, operands: [name = ""], shell }) => {
    const { description = "", host } = values;
    if (host === undefined) throw new UsageError("--host is required: it names the manager of the context");
    if (!namePattern.test(name))
      throw new UsageError(
        `invalid context name "${name}": expected at least two characters of letters, digits and _.+-`,
      );
    if (name === defaultContext || readContexts().named.has(name))
      throw new UserError(`context "${name}" already exists`);
    const context = host.startsWith("tcp://")
      ? await createRemote(name, { ...values, host, description })
      : createLocal(host, description, values);
    const { current, named } = readContexts();
    writeContexts({ current, named: new Map([...named, [name, context]]) });
    shell.print(name);
    if (context.user !== undefined && values.credentials === undefined)
      shell.remark(`Log in with 'muster login ${name}'`);
  },
});

const remoteOnly = ["user", "ca", "ca-digest", "credentials"] as const;

type RemoteValues = { readonly [Flag in (typeof remoteOnly)[number]]?: string | undefined };

function createLocal(host: string, description: string, values: RemoteValues): Context {
  const flag = remoteOnly.find((each) => values[each] !== undefined);
  if (flag !== undefined) throw new UsageError(`--${flag} requires a --host on another machine: tcp://ADDR:PORT`);
  return { host: `unix://${socketPath(host)}`, description };
}

const textFrom = (path: string): string => new TextDecoder().decode(contentFrom(path));

/** Throws UserError for a file without a certificate. */
function certificateIn(path: string, validUntilMs: (pem: string) => number | null): string {
  const pem = textFrom(path);
  if (validUntilMs(pem) === null) throw new UserError(`no PEM certificate in ${path}`);
  return pem;
}

/** Stores the root, and the credentials if given. */
async function createRemote(
  name: string,
  values: RemoteValues & { readonly host: string; readonly description: string },
): Promise<Context> {
  const { ca, "ca-digest": digest, credentials, description, host, user } = values;
  if (user === undefined) throw new UsageError("--user is required: a manager on another machine serves users only");
  if ((ca === undefined) === (digest === undefined))
    throw new UsageError(
      "--ca or --ca-digest is required to verify the manager (run 'muster ca' on a manager to get them)",
    );
  // Load TLS and certificates only here: other commands start faster.
  const [{ fetchRoot, remoteAddress }, kept, { validUntilMs }] = await Promise.all([
    import("./remote/connect.ts"),
    import("./remote/credentials.ts"),
    import("../lib/pki/index.ts"),
  ]);
  const at = remoteAddress(host);
  const given = credentials === undefined ? null : kept.parseCredentials(textFrom(credentials), credentials);
  let rootPem: string;
  if (digest === undefined) rootPem = certificateIn(ca ?? "", validUntilMs);
  else if (/^sha256:[0-9a-f]{64}$/i.test(digest)) rootPem = await fetchRoot(host, digest);
  else throw new UsageError(`invalid --ca-digest ${digest}: expected sha256: followed by 64 hexadecimal digits`);
  kept.saveRoots(name, rootPem);
  if (given !== null) kept.saveCredentials(name, given);
  return { host: `tcp://${formatHostPort(at)}`, description, user };
}

const use = command({
  operands: "CONTEXT",
  min: 1,
  max: 1,
  summary: "Set the context that commands use when they name no manager.",
  options: {},
  completes: [],
  run: ({ operands: [name = ""], shell }) => {
    const { named } = readContexts();
    if (name !== defaultContext && !named.has(name)) throw notFound(name);
    writeContexts({ current: name, named });
    shell.print(name);
    if (currentContext() !== name)
      shell.remark("note: MUSTER_HOST or MUSTER_CONTEXT is set and overrides it: unset them to use this context");
    return Promise.resolve();
  },
});

const ls = command({
  summary: "List contexts; * marks the one in use.",
  options: listingOptions,
  run: ({ values, shell }) => {
    const { named } = readContexts();
    const current = currentContext();
    const [last = ""] = knownHosts();
    const contexts: readonly (Context & { readonly name: string })[] = [
      { name: defaultContext, host: last, description: "The cluster started last on this machine" },
      ...Array.from(named, ([name, context]) => ({ name, ...context })),
    ];
    printListing(
      shell,
      {
        headings: ["NAME", "DESCRIPTION", "MANAGER", "USER"],
        rows: contexts.map(({ description, host, name, user = "" }) => ({
          id: name,
          cells: [name === current ? `${name} *` : name, description, host, user],
          object: () => ({}),
          fields: () => ({ Name: name, Current: name === current }),
        })),
      },
      values,
    );
    return Promise.resolve();
  },
});

const show = command({
  summary: "Print the name of the context in use.",
  options: {},
  run: ({ shell }) => {
    shell.print(currentContext() ?? defaultContext);
    return Promise.resolve();
  },
});

const rm = command({
  operands: "CONTEXT [CONTEXT...]",
  min: 1,
  summary: "Remove contexts.",
  options: { force: { type: "boolean", short: "f", help: "Remove the context in use as well" } },
  completes: [],
  run: ({ values, operands, shell }) =>
    eachOperand(operands, async (name) => {
      const { current, named } = readContexts();
      if (name === defaultContext) throw new UserError('cannot remove the context "default"');
      if (!named.has(name)) throw notFound(name);
      if (name === current && values.force !== true)
        throw new UserError(`context "${name}" is in use: switch to another one first, or set --force`);
      // Remove the key too.
      const { forgetContext } = await import("./remote/credentials.ts");
      forgetContext(name);
      const left = new Map([...named].filter(([other]) => other !== name));
      writeContexts({ current: name === current ? defaultContext : current, named: left });
      shell.print(name);
    }),
});

function notFound(name: string): UserError {
  return new NotThereError(`context "${name}" not found: see 'muster context ls'`);
}

export const commands: Readonly<Record<string, Command>> = { create, use, ls, show, rm };
