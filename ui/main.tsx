import { render } from "preact";
import { App } from "./app.tsx";
import { startSeeking } from "./seeking.ts";
import { startSelection } from "./selection.ts";
import { start } from "./state.ts";
import { startTimeLine } from "./time-line.ts";

const root = document.getElementById("app");
if (root !== null) {
  start();
  startTimeLine();
  startSeeking();
  startSelection();
  render(<App />, root);
}
