import icon from "./icon.svg";
import type { Ability } from "./api/session";
import { Button } from "./components/Button";
import { Icon, type IconName } from "./components/Icon";
import { Menu, type MenuItem } from "./components/Menu";
import { ThemeButton } from "./components/ThemeButton";
import { PHONE, useMedia } from "./lib/hooks";
import { plainLine } from "./lib/plain";
import { connection, daemonVersion } from "./state/live";
import { pending } from "./state/requests";
import { go, route, to } from "./state/route";
import { sandboxes } from "./state/sandboxes";
import { leave, may, session } from "./state/session";
import { nextTheme } from "./state/theme";
import { attempt } from "./state/toasts";

type Place = { page: string; label: string; icon: IconName; needs?: Ability };

const PLACES: Place[] = [
  { page: "sandboxes", label: "Sandboxes", icon: "box" },
  { page: "requests", label: "Requests", icon: "bell" },
  { page: "fleet", label: "Fleet", icon: "chart", needs: "fleet" },
  { page: "keys", label: "Keys", icon: "key", needs: "keys" },
  { page: "secrets", label: "Secrets", icon: "lock", needs: "secrets" },
  { page: "shares", label: "Shares", icon: "link", needs: "share" },
  { page: "audit", label: "Audit", icon: "list", needs: "audit" },
  { page: "doctor", label: "Doctor", icon: "pulse", needs: "doctor" },
  { page: "connect", label: "Connect", icon: "plug" },
];

const WORDS = { connecting: "Connecting", live: "Live", lost: "Disconnected" };

/** Whether the caller may go to a page. One that is no place of the side bar decides itself. */
export function mayGo(page: string): boolean {
  const needs = PLACES.find((place) => place.page === page)?.needs;
  return !needs || may(needs);
}

/** The places that the caller may go to. */
export function places(): Place[] {
  return PLACES.filter((place) => !place.needs || may(place.needs));
}

/** Places at the foot of a phone; the others are in a menu beside them. */
const ON_PHONES = 4;

function restOf(all: Place[]): MenuItem[] {
  const items: MenuItem[] = all.map((place) => ({ label: place.label, icon: place.icon, run: () => go(place.page) }));
  items.push({ label: "Change colours", icon: "auto", run: nextTheme });
  const who = session.value;
  if (who && who.who !== "dev") {
    items.push({ label: "Sign out", icon: "exit", run: () => void attempt("Not signed out", leave) });
  }
  return items;
}

export function Side() {
  const page = route.value.parts[0] ?? "sandboxes";
  const who = session.value;
  const isPhone = useMedia(PHONE);
  const all = places();
  return (
    <nav class="side" aria-label="Dashboard">
      <a class="brand" href={to("sandboxes")}>
        <img src={icon} alt="" />
        Warren
      </a>
      {all.slice(0, isPhone ? ON_PHONES : all.length).map((place) => (
        <a
          key={place.page}
          class="side-link"
          href={to(place.page)}
          aria-current={page === place.page ? "page" : undefined}
        >
          <Icon name={place.icon} />
          {place.label}
          {place.page === "sandboxes" && <span class="count">{sandboxes.value.size.toLocaleString()}</span>}
          {place.page === "requests" && pending.value.size > 0 && (
            <span class="badge accent waiting">
              {pending.value.size}
              <span class="visually-hidden"> waiting</span>
            </span>
          )}
        </a>
      ))}
      {isPhone && (
        <div class={`side-link ${all.findIndex((place) => place.page === page) >= ON_PHONES ? "current" : ""}`}>
          <Menu label="More pages" items={restOf(all.slice(ON_PHONES))} />
          More
        </div>
      )}
      <div class="side-foot">
        {who && (
          <div class="who">
            <strong>{plainLine(who.label)}</strong>
            <span>
              {who.namespace === "*" ? "all namespaces" : `namespace ${who.namespace}`}
              {who.readOnly && " · read-only"}
            </span>
          </div>
        )}
        <span
          class={`pulse ${connection.value}`}
          title={daemonVersion.value ? `warren ${daemonVersion.value}` : undefined}
        >
          {WORDS[connection.value]}
          {daemonVersion.value && <span>· {daemonVersion.value}</span>}
        </span>
        <div class="row tight nowrap">
          <ThemeButton />
          {who && who.who !== "dev" && (
            <Button kind="quiet" icon="exit" label="Sign out" onClick={() => void attempt("Not signed out", leave)} />
          )}
        </div>
      </div>
    </nav>
  );
}
