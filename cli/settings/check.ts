/** `muster config check`: checks a file of settings as the process would at its start. */
import { UsageError } from "../../lib/user-error.ts";
import { command, type Command } from "../command.ts";
import { commandAt, type Verbs } from "../help/tree.ts";
import { settingsIn, settingsText } from "./file.ts";
import { locatedIn } from "./process-settings.ts";

/** The commands that read such files. */
export const processNames = ["manager", "agent", "up", "start"] as const;

/** Null, or the error. `known`: how many keys of the file the process has. */
interface Outcome {
  readonly name: string;
  readonly error: unknown;
  readonly known: number;
}

async function checkFor(verbs: Verbs, name: string, text: string, file: string): Promise<Outcome> {
  const process = (await commandAt(verbs, [name]))?.found.command;
  if (process === undefined || process.checkSettings === null)
    throw new UsageError(`invalid argument "${name}" for "--process" flag: expected one of ${processNames.join(", ")}`);
  const { flags } = process.describe(name);
  const known = flags.filter((flag) => flag.isSetting && new RegExp(`^${flag.name} *:`, "m").test(text)).length;
  try {
    const settings = settingsIn(text, file, flags);
    try {
      await process.checkSettings(Object.fromEntries([...settings].map(([key, { value }]) => [key, value])));
    } catch (error) {
      throw locatedIn(settings, error);
    }
    return { name, error: null, known };
  } catch (error) {
    return { name, error, known };
  }
}

export const checkOf = (verbs: Verbs): Command =>
  command({
    operands: "FILE",
    min: 1,
    max: 1,
    summary: "Check a configuration file of a manager or an agent, without starting anything.",
    options: {
      process: {
        type: "string",
        value: "NAME",
        help: `Process that the file is for: ${processNames.join(", ")} (default: any that accepts the file)`,
        completes: processNames,
      },
    },
    completes: ["file"],
    run: async ({ values, operands: [file = ""], shell }) => {
      const text = settingsText(file);
      const names = values.process === undefined ? processNames : [values.process];
      const outcomes: Outcome[] = [];
      for (const name of names) outcomes.push(await checkFor(verbs, name, text, file));
      const accepting = outcomes.filter(({ error }) => error === null);
      // The file is probably meant for the process that knows most of its keys.
      const [nearest] = outcomes.toSorted((a, b) => b.known - a.known);
      if (accepting.length === 0) throw nearest?.error;
      shell.print(`${file}: valid for ${accepting.map(({ name }) => `'muster ${name}'`).join(", ")}`);
    },
  });
