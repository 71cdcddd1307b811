import type { ComponentChildren } from "preact";

type Props = { title: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren; flush?: boolean };

/** A titled box. `flush` leaves out the inner margin, for tables. */
export function Panel({ title, actions, children, flush }: Props) {
  return (
    <section class="panel">
      <header class="panel-head">
        <h2>{title}</h2>
        <div class="actions row">{actions}</div>
      </header>
      {flush ? children : <div class="panel-body">{children}</div>}
    </section>
  );
}
