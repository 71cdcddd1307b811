import { render } from "preact";
import "./style.css";
import { App } from "./App";
import { startLive } from "./state/live";

const root = document.getElementById("app");
if (root) {
  startLive();
  render(<App />, root);
}
