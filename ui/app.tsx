/** The frame of the page: header, connection, and the view that the address names. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { hashOf } from "./model/route.ts";
import { actors, clock, feedError, frame, link, route } from "./state.ts";
import { ActorsView } from "./views/actors.tsx";
import { ChartView } from "./views/chart.tsx";
import { SequenceView } from "./views/sequence.tsx";

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
    text = feedError.value === "" ? "live" : `connected, but ${feedError.value}`;
    if (feedError.value !== "") kind = "lost";
  } else if (value.state === "lost") {
    const seconds = Math.max(0, Math.ceil((value.retryAtMs - clock.value) / 1_000));
    text = `${value.reason === "" ? "connection lost" : value.reason}; next attempt in ${seconds} s. What is shown is from before.`;
  } else if (value.state === "expired")
    text = "session expired: log in again, or run 'muster ui' and open the address that it prints";
  return (
    <p class={`link ${kind}`} role="status">
      {text}
    </p>
  );
}

function Numbers() {
  void frame.value;
  let gaps = 0;
  let dropped = 0;
  let stale = 0;
  for (const process of actors.processes.values()) {
    gaps += process.gaps;
    dropped += process.droppedSteps;
    if (process.stale) stale += 1;
  }
  return (
    <p class="numbers">
      <span>{actors.size.toLocaleString("en")} actors</span>
      <span>{actors.stepsSeen.toLocaleString("en")} steps</span>
      {gaps > 0 && <span class="warn">{gaps} gaps</span>}
      {dropped > 0 && <span class="warn">{dropped.toLocaleString("en")} steps left out</span>}
      {stale > 0 && <span class="warn">{stale} processes not current</span>}
    </p>
  );
}

export function App() {
  const { view } = route.value;
  const hello = link.value.state === "live" ? link.value.hello : null;
  return (
    <>
      <header>
        <h1>Muster</h1>
        <nav aria-label="Views">
          <a href={hashOf({ view: "actors" })} aria-current={view === "sequence" ? undefined : "page"}>
            Actors
          </a>
          <a href={hashOf({ view: "sequence", trace: "" })} aria-current={view === "sequence" ? "page" : undefined}>
            Sequence
          </a>
        </nav>
        <LinkState />
        <Numbers />
        <p class="who">
          {hello !== null && [hello.cluster, hello.user, hello.role, hello.version].filter(Boolean).join(" · ")}
        </p>
        <ThemeButton />
      </header>
      {view === "sequence" ? (
        <main class="alone">
          <SequenceView trace={route.value.view === "sequence" ? route.value.trace : ""} />
        </main>
      ) : (
        <main>
          <ActorsView />
          <ChartView />
        </main>
      )}
    </>
  );
}
