/** Width of texts in terminal columns, and cutting texts to a width. */

/** East Asian wide and full-width characters, by script and block, and emoji. */
const wide =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Script=Yi}\u3000-\u303e\uff01-\uff60\uffe0-\uffe6\p{Emoji_Presentation}]|\p{Extended_Pictographic}\ufe0f/u;
const halfWidth = /^[\uff61-\uffdc\uffe8-\uffee]/;
const unseen = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;

/** Fast path: one column per character. */
const ascii = /^[\x20-\x7e]*$/;

let segmenter: Intl.Segmenter | null = null;

/** Created on first use: it takes a tenth of a short command's run time. */
function graphemesOf(text: string): Intl.Segments {
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  return segmenter.segment(text);
}

function graphemeWidth(text: string): number {
  if (unseen.test(text)) return 0;
  return wide.test(text) && !halfWidth.test(text) ? 2 : 1;
}

/** Width in columns. Control characters count as one; see `printable`. */
export function textWidth(text: string): number {
  if (ascii.test(text)) return text.length;
  let width = 0;
  for (const { segment } of graphemesOf(text)) width += graphemeWidth(segment);
  return width;
}

export function padEndTo(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - textWidth(text)));
}

/** Cuts a text to `width` columns, with an ellipsis. */
export function cutTo(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  if (ascii.test(text)) return `${text.slice(0, Math.max(0, width - 1))}…`;
  let cut = "";
  let left = width - 1;
  for (const { segment } of graphemesOf(text)) {
    left -= graphemeWidth(segment);
    if (left < 0) break;
    cut += segment;
  }
  return `${cut}…`;
}

/** On one line and without control sequences: a task's error text is up to its node. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- replacing control characters is the purpose
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}
