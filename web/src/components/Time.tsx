import { dateTime, shortDuration } from "../lib/format";
import { now } from "../state/clock";

/** How long ago something was, or how long until it is; the exact time is the title. */
export function Ago({ at, suffix }: { at: string | number; suffix?: string }) {
  const distance = now.value - new Date(at).getTime();
  return (
    <time dateTime={new Date(at).toISOString()} title={dateTime(at)} class="number">
      {shortDuration(Math.abs(distance))}
      {suffix ?? ""}
    </time>
  );
}

export function Until({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="faint">never</span>;
  const left = new Date(at).getTime() - now.value;
  if (left <= 0) return <span class="warn">now</span>;
  return (
    <span class={left < 120_000 ? "warn" : undefined}>
      <Ago at={at} />
    </span>
  );
}
