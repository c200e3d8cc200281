/** News of actors, one line each: as text, or as a JSON object. */
import type { Actors } from "../../proto/feed/actors.ts";
import { jsonText } from "../../lib/template/template.ts";
import { filled, readFormat, type Format } from "../format.ts";
import type { Shell } from "../shell.ts";
import type { Followed } from "./follow.ts";
import { actorObject, stepObject } from "./objects.ts";
import { stuckFor } from "./listing.ts";
import { loggedStep } from "./step-lines.ts";
import { line, rendered, shortDuration, span, type Line } from "./texts.ts";

type Fields = Readonly<Record<string, unknown>>;

/** `nowMs`: the clock of this command. */
function objectOf(news: Followed, actors: Actors, nowMs: number): Fields {
  const Time = new Date(nowMs).toISOString();
  switch (news.kind) {
    case "actor": {
      const { actor, process } = news;
      const overdueMs = stuckFor(actor, process, nowMs + process.skewMs);
      return { Type: "actor", Time, ...actorObject(actor, process, overdueMs) };
    }
    case "step":
      return stepObject(news.step, news.process.id);
    case "ended":
      return { Type: "ended", Time, Process: news.process.id, Actor: news.actor };
    case "dropped":
      return { Type: "dropped", Time, Process: news.process.id, Steps: news.steps };
    case "gap":
      return { Type: "gap", Time, Process: news.process.id };
    case "lost":
      return { Type: "lost", Time, Process: news.process.id, Reason: news.reason };
    case "stuck": {
      const { process, actor, overdueMs } = news;
      const States = actors.find(process, actor)?.states ?? [];
      return { Type: "stuck", Time, Process: process, Actor: actor, States, OverdueMs: Math.round(overdueMs) };
    }
    case "disconnected":
      return { Type: "disconnected", Time, Reason: news.reason, RetryMs: news.retryMs };
    case "connected":
      return { Type: "connected", Time };
  }
}

/** Null: there is nothing to tell. */
function lineOf(news: Followed, actors: Actors, nowMs: number, namesProcess: boolean): Line | null {
  const at = span(`${new Date(nowMs).toISOString()} `, "dim");
  switch (news.kind) {
    case "actor":
      return null;
    case "step":
      return loggedStep(news.step, namesProcess ? news.process.id : null);
    case "ended":
      return [at, span(namesProcess ? `${news.process.id} ` : ""), span(`${news.actor} `, "title"), span("ended")];
    case "dropped":
      return [
        at,
        span(`${news.process.id}: ${news.steps} steps left out: they came faster than they were read`, "alarm"),
      ];
    case "gap":
      return [at, span(`${news.process.id}: messages were lost; waiting for a new snapshot`, "alarm")];
    case "lost":
      return [at, span(`${news.process.id} cannot be watched: ${news.reason}`, "alarm")];
    case "stuck": {
      const states = actors.find(news.process, news.actor)?.states.join(" + ") ?? "";
      const text = `STUCK in ${states}: overdue by ${shortDuration(news.overdueMs)}`;
      return [at, span(namesProcess ? `${news.process} ` : ""), span(`${news.actor} `, "title"), span(text, "alarm")];
    }
    case "disconnected":
      return [at, span(`connection lost: ${news.reason}; next attempt in ${shortDuration(news.retryMs)}`, "alarm")];
    case "connected":
      return [at, ...line("connected again")];
  }
}

/** `json`, a template over the objects, or lines of text. Throws UsageError. */
export function newsPrinter(
  shell: Shell,
  format: string | undefined,
  namesProcess: boolean,
): (news: Followed, actors: Actors) => void {
  const chosen: Format = readFormat(format);
  return (news, actors) => {
    const nowMs = shell.now();
    if (chosen.kind === "json" || chosen.kind === "wire") shell.print(jsonText(objectOf(news, actors, nowMs)));
    else if (chosen.kind === "template") shell.print(filled(chosen.template, objectOf(news, actors, nowMs)));
    else {
      const text = lineOf(news, actors, nowMs, namesProcess);
      if (text !== null) shell.print(rendered(text, { width: null, colours: false }));
    }
  };
}
