/** Lines of text with styles, cut to the terminal's width, and durations and times in few columns. */
import { styleText } from "node:util";
import { cutTo, printable, textWidth } from "../text-width.ts";

export type Style = "active" | "taken" | "alarm" | "dim" | "title";

interface Span {
  readonly text: string;
  readonly style: Style | null;
}

export type Line = readonly Span[];

const formats: Readonly<Record<Style, Parameters<typeof styleText>[0]>> = {
  active: ["bold", "green"],
  taken: ["bold", "yellow"],
  alarm: ["bold", "red"],
  dim: "dim",
  title: "bold",
};

export const span = (text: string, style: Style | null = null): Span => ({ text, style });
export const line = (text: string, style: Style | null = null): Line => [span(text, style)];

interface Paper {
  /** Columns; null: lines are not cut. */
  readonly width: number | null;
  readonly colours: boolean;
}

/** The line for output. Control characters, which come from other processes, become blanks. */
export function rendered(spans: Line, { width, colours }: Paper): string {
  let left = width ?? Number.POSITIVE_INFINITY;
  let text = "";
  for (const { text: given, style } of spans) {
    const cut = cutTo(printable(given), left);
    left -= textWidth(cut);
    text += style === null || !colours ? cut : styleText(formats[style], cut, { validateStream: false });
    if (left <= 0) break;
  }
  return text.trimEnd();
}

/** Breaks a text between words into lines of at most `width` columns; a longer word is cut when it is rendered. */
export function wrapped(text: string, width: number): readonly string[] {
  const lines: string[] = [];
  let current = "";
  for (const word of text.split(/\s+/)) {
    const longer = current === "" ? word : `${current} ${word}`;
    if (current !== "" && textWidth(longer) > width) {
      lines.push(current);
      current = word;
    } else current = longer;
  }
  return [...lines, current];
}

/** Such as `0.4s`, `42s`, `3m05s`, `2h10m` or `3d04h`. Never negative. */
export function shortDuration(ms: number): string {
  const two = (count: number): string => String(count).padStart(2, "0");
  // Tenths matter only while a reader can see them pass.
  if (ms < 9_950) return `${(Math.max(0, ms) / 1_000).toFixed(1)}s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${two(seconds % 60)}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours}h${two(minutes % 60)}m` : `${Math.floor(hours / 24)}d${two(hours % 24)}h`;
}

/** In UTC: `14:03:07.120`; with its date if that is another day than that of `nowMs`. */
export function momentText(ms: number, nowMs: number): string {
  const [day = "", time = ""] = new Date(ms).toISOString().split("T");
  return `${new Date(nowMs).toISOString().startsWith(day) ? "" : `${day} `}${time.replace("Z", "")}`;
}

/** A chart's delay: its name, or milliseconds. */
export const delayText = (delay: string): string => (/^\d+$/.test(delay) ? `${delay}ms` : delay);

/** XState's own events in the words of the charts: `xstate.after.grace.session.lost` is `after grace`. */
export function eventText(event: string): string {
  const delay = /^xstate\.after\.([^.]+)\./.exec(event)?.[1];
  if (delay !== undefined) return `after ${delayText(delay)}`;
  if (event === "xstate.init") return "start";
  return event.replace(/^xstate\.(done|error)\.(?:actor|state)\./, "$1 ");
}
