/** How many columns of a terminal a text takes, and texts cut to fit. */

/** East Asian wide and full width, by script and block; and what is drawn as a picture. */
const wide =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Script=Yi}\u3000-\u303e\uff01-\uff60\uffe0-\uffe6\p{Emoji_Presentation}]|\p{Extended_Pictographic}\ufe0f/u;
const halfWidth = /^[\uff61-\uffdc\uffe8-\uffee]/;
const unseen = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;

/** Nearly all texts are these alone: each takes one column. */
const ascii = /^[\x20-\x7e]*$/;

let segmenter: Intl.Segmenter | null = null;

/** Made when it is needed first: that takes a tenth of what a short command takes in all. */
function graphemesOf(text: string): Intl.Segments {
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  return segmenter.segment(text);
}

function graphemeWidth(text: string): number {
  if (unseen.test(text)) return 0;
  return wide.test(text) && !halfWidth.test(text) ? 2 : 1;
}

/** Columns. Control characters count as one; see `printable`. */
export function textWidth(text: string): number {
  if (ascii.test(text)) return text.length;
  let width = 0;
  for (const { segment } of graphemesOf(text)) width += graphemeWidth(segment);
  return width;
}

export function padEndTo(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - textWidth(text)));
}

/** At most `width` columns, with an ellipsis where something is left away. */
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

/** On one line, and without what a terminal would take for a command: a node writes a task's error as it likes. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- these are what is looked for
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}
