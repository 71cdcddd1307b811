import { signal } from "@preact/signals";

/** Where the page is: `#/sandboxes/<id>/files?path=/root` has two or more parts and a query. */
export type Route = { parts: string[]; query: URLSearchParams };

function read(): Route {
  const [before = "", after = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: before.split("/").filter(Boolean).map(decode), query: new URLSearchParams(after) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>(read());

addEventListener("hashchange", () => {
  route.value = read();
});

/** The address of a place in the dashboard, for `href`. */
export function to(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(...parts: string[]): void {
  location.hash = to(...parts);
}

/** Takes a one-time token out of the fragment, and the fragment out of the history. */
export function takeToken(): { once: string } | { share: string } | null {
  const found = /^#(once|share)=([^&]+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname);
  route.value = read();
  const token = decode(found[2] ?? "");
  return found[1] === "once" ? { once: token } : { share: token };
}
