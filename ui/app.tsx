/** The frame of the page: header, connection, and the view that the address names. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { addressOf, clock, feedError, frame, link, moment, route, shown } from "./state.ts";
import { isRecording } from "./time-line.ts";
import { ActorsView } from "./views/actors.tsx";
import { ChartView } from "./views/chart.tsx";
import { ClusterPart } from "./views/cluster.tsx";
import { SequenceView } from "./views/sequence.tsx";
import { timeText } from "./views/texts.ts";
import { TimeLine } from "./views/time-line.tsx";

type Theme = "auto" | "light" | "dark";
const themes: readonly Theme[] = ["auto", "light", "dark"];
const themeKey = "muster.theme";
const stored = window.localStorage.getItem(themeKey) as Theme | null;
const theme = signal<Theme>(stored !== null && themes.includes(stored) ? stored : "auto");

function ThemeButton() {
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme.value;
    window.localStorage.setItem(themeKey, theme.value);
  }, [theme.value]);
  const next = themes[(themes.indexOf(theme.value) + 1) % themes.length] as Theme;
  return (
    <button
      type="button"
      onClick={() => (theme.value = next)}
      aria-label={`Colours: ${theme.value}. Change to ${next}`}
    >
      {theme.value === "auto" ? "◐ auto" : theme.value === "light" ? "☀ light" : "☾ dark"}
    </button>
  );
}

function LinkState() {
  const { value } = link;
  let text = "connecting …";
  let kind: string = value.state;
  if (value.state === "live") {
    const cluster = value.hello.cluster === "" ? "a cluster" : value.hello.cluster;
    if (isRecording.value) text = `recording of ${cluster}`;
    else if (feedError.value !== "") text = `connected, but ${feedError.value}`;
    else text = moment.value === null ? "live" : `past, ${timeText(moment.value)}`;
    if (feedError.value !== "") kind = "lost";
    else if (moment.value !== null) kind = "past";
  } else if (value.state === "lost") {
    const seconds = Math.max(0, Math.ceil((value.retryAtMs - clock.value) / 1_000));
    text = `${value.reason === "" ? "connection lost" : value.reason}; next attempt in ${seconds} s. What is shown is from before.`;
  } else if (value.state === "expired")
    text = value.logsIn
      ? "session expired. What is shown is from before."
      : "session expired: run 'muster ui' again and open the address that it prints";
  return (
    <p class={`link ${kind}`} role="status">
      {text}{" "}
      {value.state === "expired" && value.logsIn && (
        <button type="button" onClick={() => window.location.reload()}>
          Log in
        </button>
      )}
    </p>
  );
}

function Numbers() {
  void frame.value;
  let gaps = 0;
  let dropped = 0;
  let stale = 0;
  for (const process of shown.value.processes.values()) {
    gaps += process.gaps;
    dropped += process.droppedSteps;
    if (process.stale) stale += 1;
  }
  return (
    <p class="numbers">
      <span>{shown.value.size.toLocaleString("en")} actors</span>
      {moment.value === null && <span>{shown.value.stepsSeen.toLocaleString("en")} events</span>}
      {gaps > 0 && <span class="warn">{gaps} gaps</span>}
      {dropped > 0 && <span class="warn">{dropped.toLocaleString("en")} events left out</span>}
      {stale > 0 && <span class="warn">{stale} processes not current</span>}
    </p>
  );
}

export function App() {
  const { view } = route.value;
  const hello = link.value.state === "live" ? link.value.hello : null;
  return (
    <>
      <header class={moment.value === null ? "" : "past"}>
        <h1>Muster</h1>
        <nav aria-label="Views">
          <a
            href={addressOf({ view: "cluster", part: "overview" })}
            aria-current={view === "cluster" ? "page" : undefined}
          >
            Cluster
          </a>
          <a
            href={addressOf({ view: "actors" })}
            aria-current={view === "actors" || view === "actor" ? "page" : undefined}
          >
            Actors
          </a>
          <a href={addressOf({ view: "sequence", trace: "" })} aria-current={view === "sequence" ? "page" : undefined}>
            Sequence
          </a>
        </nav>
        <LinkState />
        <Numbers />
        <p class="who">
          {hello !== null && [hello.cluster, hello.user, hello.role, hello.version].filter(Boolean).join(" · ")}
        </p>
        {hello?.canLogOut === true && (
          <form method="post" action="/logout">
            <button type="submit">Log out</button>
          </form>
        )}
        <ThemeButton />
      </header>
      {route.value.view === "cluster" ? (
        <ClusterPart route={route.value} />
      ) : view === "sequence" ? (
        <main class="alone">
          <SequenceView trace={route.value.view === "sequence" ? route.value.trace : ""} />
        </main>
      ) : (
        <main>
          <ActorsView />
          <ChartView />
        </main>
      )}
      <TimeLine />
    </>
  );
}
