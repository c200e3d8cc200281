/** What somebody may have meant by a word that is no command. */
import { distance } from "fastest-levenshtein";

/** Letters typed wrong, left out or added, in a word of that length. */
const mistakesMax = (word: string): number => (word.length <= 3 ? 1 : 2);
const suggestionsMax = 3;

/** The candidates that are close to `word`, or that it begins (at least two letters of them), the closest first. */
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

/** `did you mean 'ls' or 'rm'? `; empty where nothing is close. */
export function didYouMean(similar: readonly string[]): string {
  return similar.length === 0 ? "" : `did you mean ${similar.map((word) => `'${word}'`).join(" or ")}? `;
}
