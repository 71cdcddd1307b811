import type { ComponentChildren } from "preact";
import { wordsOf } from "../api/errors";
import { plainText } from "../lib/plain";
import { Button } from "./Button";
import { Icon } from "./Icon";

export function Notice({ tone, children }: { tone?: "warn" | "bad"; children: ComponentChildren }) {
  return (
    <div class={`notice ${tone ?? ""}`} role={tone === "bad" ? "alert" : undefined}>
      {tone && <Icon name="warning" />}
      <div>{children}</div>
    </div>
  );
}

/** Says what could not be loaded, with a way to try again. */
export function ErrorNotice({ error, retry }: { error: unknown; retry?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <Icon name="warning" />
      <span>{plainText(wordsOf(error))}</span>
      {retry && (
        <Button small onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
