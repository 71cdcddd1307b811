import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const STORED_AS = "warren.theme";

function stored(): Theme {
  const value = localStorage.getItem(STORED_AS);
  return value === "light" || value === "dark" ? value : "system";
}

export const theme = signal<Theme>(stored());

/** Grows whenever colours change, so that charts and terminals can draw anew. */
export const paint = signal(0);

effect(() => {
  const chosen = theme.value;
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  localStorage.setItem(STORED_AS, chosen);
  paint.value = paint.peek() + 1;
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  paint.value += 1;
});

export function nextTheme(): void {
  theme.value = theme.value === "system" ? "light" : theme.value === "light" ? "dark" : "system";
}

/** The colour of a token as the browser computes it now. */
export function colour(token: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
