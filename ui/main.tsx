import { render } from "preact";
import { App } from "./app.tsx";
import { startSeeking } from "./seeking.ts";
import { startSelection } from "./selection.ts";
import { start } from "./state.ts";
import { startTimeLine } from "./time-line.ts";

const root = document.getElementById("app");
if (root !== null) {
  // The door's script has been here (`door.ts`); the address is shared without it.
  if (window.location.search !== "") window.history.replaceState(null, "", `/${window.location.hash}`);
  start();
  startTimeLine();
  startSeeking();
  startSelection();
  render(<App />, root);
}
