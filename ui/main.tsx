import { render } from "preact";
import { App } from "./app.tsx";
import { start } from "./state.ts";

const root = document.getElementById("app");
if (root !== null) {
  start();
  render(<App />, root);
}
