/** `muster completion bash|zsh|fish`: prints a script that completes verbs, flags and names of objects. */
import { candidates } from "./completion/candidates.ts";
import { scripts } from "./completion/scripts.ts";
import { command, type Command } from "./command.ts";
import type { Verbs } from "./help/tree.ts";
import { UsageError } from "../lib/user-error.ts";

const shells = Object.keys(scripts);

export const completionOf = (verbs: Verbs): Command =>
  command({
    operands: `${shells.join("|")} [-- WORD...]`,
    min: 1,
    stopsAtOperand: true,
    summary: "Generate a completion script for a shell: verbs, flags and names of objects in the cluster.",
    options: {},
    completes: [],
    async run({ operands: [shellName = "", ...words], shell }) {
      // The scripts' query: the words so far, of which the last is being typed.
      if (shellName === "words") {
        const given = words[0] === "--" ? words.slice(1) : words;
        const { files, words: found } = await candidates(verbs, shell, given.slice(0, -1), given.at(-1) ?? "");
        if (found.length > 0) shell.print(found.join("\n"));
        if (files) shell.print(":files");
        return;
      }
      const script = Object.hasOwn(scripts, shellName) ? scripts[shellName] : undefined;
      if (script === undefined || words.length > 0) {
        throw new UsageError(`unknown shell "${[shellName, ...words].join(" ")}": expected ${shells.join(", ")}`);
      }
      shell.print(script.trimEnd());
    },
  });
