/** The table of settings in docs/configuration.md, written from the flags of the long-running commands. */
import { commandAt } from "../cli/help/tree.ts";
import type { FlagDescription } from "../cli/help/description.ts";
import { processNames } from "../cli/settings/check.ts";
import { credentialName } from "../cli/settings/layers.ts";
import { variableOf } from "../cli/settings/variable.ts";
import { verbs } from "../cli/verbs.ts";

const begin = "<!-- settings: written by `npm run reference` -->";
const end = "<!-- end of settings -->";

async function table(): Promise<string> {
  const settings = new Map<string, { readonly flag: FlagDescription; readonly of: string[] }>();
  for (const name of processNames) {
    const flags = (await commandAt(verbs, [name]))?.found.command.describe(name).flags ?? [];
    for (const flag of flags.filter(({ isSetting }) => isSetting)) {
      const known = settings.get(flag.name);
      if (known === undefined) settings.set(flag.name, { flag, of: [name] });
      else known.of.push(name);
    }
  }
  const rows = [...settings.values()].map(({ flag, of }) => {
    const value = flag.takesValue ? `${flag.value ?? "VALUE"}${flag.isRepeated ? ", list" : ""}` : "true or false";
    const notes = [
      ...(flag.credential === undefined ? [] : [`Credential \`${credentialName(flag.credential)}\`.`]),
      ...(flag.reloads === true ? ["SIGHUP reloads it."] : []),
    ];
    const cells = [`\`${flag.name}\``, `\`${variableOf(flag.name)}\``, value, of.join(", ")];
    return `| ${[...cells, [`${flag.help ?? ""}.`, ...notes].join(" ")].map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  });
  return [begin, "", "| key | variable | value | of | |", "|---|---|---|---|---|", ...rows, "", end].join("\n");
}

/** The page with a current table. Throws if it has no place for it. */
export async function withSettingsTable(page: string): Promise<string> {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the page lacks ${begin} … ${end}`);
  return `${page.slice(0, from)}${await table()}${page.slice(to + end.length)}`;
}
