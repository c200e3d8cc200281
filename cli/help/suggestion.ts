/** Suggestions for a mistyped word. */
import { distance } from "fastest-levenshtein";

/** Maximum edit distance for a word of that length. */
const mistakesMax = (word: string): number => (word.length <= 3 ? 1 : 2);
const suggestionsMax = 3;

/** Candidates similar to `word`, or that start with it (at least two letters), closest first. */
export function similarTo(word: string, candidates: readonly string[]): readonly string[] {
  const most = mistakesMax(word);
  return candidates
    .map((candidate) => ({
      candidate,
      mistakes: word.length >= 2 && candidate.startsWith(word) ? 0 : distance(word, candidate),
    }))
    .filter(({ mistakes, candidate }) => mistakes <= most && mistakes < candidate.length)
    .toSorted((a, b) => a.mistakes - b.mistakes)
    .slice(0, suggestionsMax)
    .map(({ candidate }) => candidate);
}

/** `did you mean 'ls' or 'rm'? `; empty when nothing is similar. */
export function didYouMean(similar: readonly string[]): string {
  return similar.length === 0 ? "" : `did you mean ${similar.map((word) => `'${word}'`).join(" or ")}? `;
}
