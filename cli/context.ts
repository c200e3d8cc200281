/** `muster context`: create, use, ls, show, rm. Names for the managers that a user works with. */
import { command, listingOptions, UsageError, type Command } from "./command.ts";
import { currentContext, defaultContext, readContexts, writeContexts } from "./contexts.ts";
import { knownHosts } from "./last-host.ts";
import { eachOperand } from "./operands.ts";
import { socketPath } from "./shell.ts";
import { printListing } from "./table.ts";
import { NotThereError, UserError } from "./user-error.ts";

/** Docker's rule for names of contexts. */
const namePattern = /^[a-zA-Z0-9][a-zA-Z0-9_.+-]+$/;

const create = command({
  operands: "CONTEXT",
  min: 1,
  max: 1,
  summary: "Name a manager by its control socket.",
  options: {
    host: { type: "string", value: "SOCKET", help: "Control socket of the manager, as unix:///PATH/control.sock" },
    description: { type: "string", value: "TEXT", help: "Description of the context" },
  },
  completes: [],
  run: ({ values, operands: [name = ""], shell }) => {
    const { host } = values;
    if (host === undefined) throw new UsageError("--host is missing: it names the manager of the context");
    if (!namePattern.test(name))
      throw new UsageError(
        `invalid context name "${name}": expected letters, digits and _.+-, two characters at least`,
      );
    const { current, named } = readContexts();
    if (name === defaultContext || named.has(name)) throw new UserError(`context "${name}" already exists`);
    const context = { host: `unix://${socketPath(host)}`, description: values.description ?? "" };
    writeContexts({ current, named: new Map([...named, [name, context]]) });
    shell.print(name);
    return Promise.resolve();
  },
});

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
    const contexts = [
      { name: defaultContext, host: last, description: "The cluster started last on this machine" },
      ...Array.from(named, ([name, context]) => ({ name, ...context })),
    ];
    printListing(
      shell,
      {
        headings: ["NAME", "DESCRIPTION", "MANAGER"],
        rows: contexts.map(({ description, host, name }) => ({
          id: name,
          cells: [name === current ? `${name} *` : name, description, host],
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
    eachOperand(operands, (name) => {
      const { current, named } = readContexts();
      if (name === defaultContext) throw new UserError('the context "default" cannot be removed');
      if (!named.has(name)) throw notFound(name);
      if (name === current && values.force !== true)
        throw new UserError(`context "${name}" is in use: use another first, or set --force`);
      const left = new Map([...named].filter(([other]) => other !== name));
      writeContexts({ current: name === current ? defaultContext : current, named: left });
      shell.print(name);
      return Promise.resolve();
    }),
});

function notFound(name: string): UserError {
  return new NotThereError(`context "${name}" not found: see 'muster context ls'`);
}

export const commands: Readonly<Record<string, Command>> = { create, use, ls, show, rm };
