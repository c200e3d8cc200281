// How the comparisons with Docker's client make the output of two clusters equal.
import test from "ava";
import { normalised } from "../fixtures/docker-words.ts";

test("ids without a digit are numbered as others are", (t) => {
  t.is(normalised("mskassfajzid\n"), "ID-1\n");
  t.is(normalised("mskassfajzid\nab3defghijkl\n"), "ID-1\nID-2\n");
  t.is(normalised("ID NAME\nmskassfajzid web\n"), "ID NAME\nID-1 web\n");
  const whole = "mskassfajzidabcdefghijklm";
  t.is(normalised(`${whole}\ntask mskassfajzid failed\n`), "ID-1\ntask ID-1 failed\n");
});

test("a word of twelve letters within a line stays", (t) => {
  t.is(normalised("the distribution is unknown\n"), "the distribution is unknown\n");
});
