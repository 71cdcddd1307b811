import type { ComponentChildren } from "preact";
import { useTitle } from "../lib/hooks";

type Props = { title: string; about?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren };

/** A page that scrolls as a whole. */
export function Page({ title, about, actions, children }: Props) {
  useTitle(title);
  return (
    <div class="page">
      <header class="page-head">
        <h1>{title}</h1>
        <div class="actions row">{actions}</div>
        {about && <p class="about">{about}</p>}
      </header>
      <div class="page-body">{children}</div>
    </div>
  );
}
