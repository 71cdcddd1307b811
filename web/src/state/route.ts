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

/** The last place of this tab: whoever signs in again, with a new address, goes on there. */
const STORED_AS = "warren.place";
const isToken = (hash: string) => /^#(once|share)=/.test(hash);

addEventListener("hashchange", () => {
  route.value = read();
  keepPlace();
});

function keepPlace(): void {
  if (!isToken(location.hash)) sessionStorage.setItem(STORED_AS, location.hash);
}
keepPlace();

/** The address of a place in the dashboard, for `href`. */
export function to(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(...parts: string[]): void {
  location.hash = to(...parts);
}

/** Changes the query of the place without going anywhere, so that Back and a reload come to the same. */
export function setQuery(query: URLSearchParams): void {
  const [before] = location.hash.split("?");
  const text = query.toString();
  history.replaceState(null, "", `${before || to(...route.peek().parts)}${text ? `?${text}` : ""}`);
  keepPlace();
}

/** Takes a one-time token out of the fragment, and the fragment out of the history. */
export function takeToken(): { once: string } | { share: string } | null {
  const found = /^#(once|share)=([^&]+)$/.exec(location.hash);
  if (!found) return null;
  const place = found[1] === "once" ? (sessionStorage.getItem(STORED_AS) ?? "") : "";
  history.replaceState(null, "", location.pathname + place);
  route.value = read();
  const token = decode(found[2] ?? "");
  return found[1] === "once" ? { once: token } : { share: token };
}
