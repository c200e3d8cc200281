import { readFileSync, readdirSync } from "node:fs";
import test from "ava";
import { chartPages } from "../../tools/chart-pages.ts";

test("docs/machines shows the current charts", async (t) => {
  const folder = new URL("../../docs/machines/", import.meta.url);
  const pages = await chartPages();
  t.deepEqual(readdirSync(folder).toSorted(), [...pages.keys()].toSorted(), "run npm run charts");
  for (const [file, text] of pages) t.is(readFileSync(new URL(file, folder), "utf8"), text, "run npm run charts");
});

/** Widest label of an arrow, title of an open box, and number of boxes in the pictures of today, with some room. */
const labelMax = 28;
const titleMax = 130;
const boxesMax = 24;

test("each picture of a chart fits a page", async (t) => {
  for (const [file, text] of await chartPages()) {
    for (const [, picture = ""] of text.matchAll(/```mermaid\n([^`]*)```/g)) {
      const lines = picture.split("\n").map((line) => line.trim());
      t.false(lines.includes("--"), `${file}: Mermaid divides no picture, only a box`);
      const arrows = lines.map((line) => /^(\S+ --> \S+) : (.*)$/.exec(line)).filter((arrow) => arrow !== null);
      const ends = arrows.map(([, pair]) => pair);
      t.deepEqual(ends, [...new Set(ends)], `${file}: one arrow between two states`);
      for (const [, , label = ""] of arrows)
        for (const line of label.split("<br/>")) t.true(line.length <= labelMax, `${file}: ${line}`);
      for (const line of lines) {
        const [from = "", to = ""] = /^(\S+) --> (\S+) :/.exec(line)?.slice(1) ?? [];
        t.false(from !== to && to.startsWith(`${from}__`), `${file}: ${line} crosses its own box`);
        if (line.endsWith("{")) t.true(line.length <= titleMax, `${file}: ${line}`);
      }
      const boxes = lines.filter((line) => line.startsWith("state "));
      t.true(boxes.length <= boxesMax, `${file}: ${boxes.length} boxes`);
    }
  }
});
