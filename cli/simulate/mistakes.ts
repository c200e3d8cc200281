/** The mistakes of a file, collected so that all are reported at once, each as `FILE:LINE:COLUMN: KEY: what is wrong`. */
import { UserError } from "../../lib/user-error.ts";
import { didYouMean, similarTo } from "../help/suggestion.ts";
import { Mistake, placeText, type Place } from "../stack/located.ts";

/** Mistakes that are printed; more of them rarely have another cause. */
const printedMax = 20;

export class Mistakes {
  readonly #found: { readonly at: Place; readonly text: string }[] = [];

  add(at: Place, path: string, problem: string): void {
    const place = at.line === 0 || at.column === undefined ? placeText(at) : `${placeText(at)}:${at.column}`;
    this.#found.push({ at, text: [place, path, problem].filter((part) => part !== "").join(": ") });
  }

  /** A key that does not exist; names the most similar one that does. */
  addUnknown(at: Place, path: string, key: string, known: readonly string[]): void {
    this.add(at, path, `unknown key; ${nearestOf(key, known) ?? `expected ${listed(known)}`}`);
  }

  /** Runs `read`, and returns `otherwise` after a mistake. */
  attempt<Value>(read: () => Value, otherwise: Value): Value {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof Mistake)) throw error;
      this.add(error.at, error.path, error.problem);
      return otherwise;
    }
  }

  /** Throws UserError with all mistakes, in the order of the file. */
  report(): void {
    if (this.#found.length === 0) return;
    const texts = this.#found
      .toSorted((a, b) => a.at.line - b.at.line || (a.at.column ?? 0) - (b.at.column ?? 0))
      .map(({ text }) => text);
    const more = texts.length - printedMax;
    throw new UserError([...texts.slice(0, printedMax), ...(more > 0 ? [`and ${more} more mistakes`] : [])].join("\n"));
  }
}

/** `did you mean 'web'?`; null when nothing is similar. */
export function nearestOf(word: string, known: readonly string[]): string | null {
  const text = didYouMean(similarTo(word, known).slice(0, 1)).trim();
  return text === "" ? null : text;
}

/** `a, b or c`. */
export function listed(words: readonly string[]): string {
  const last = words.at(-1) ?? "nothing";
  return words.length < 2 ? last : `${words.slice(0, -1).join(", ")} or ${last}`;
}
