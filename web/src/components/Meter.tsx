type Props = { value: number | null | undefined; limit: number | null | undefined };

const HIGH = 0.75;
const FULL = 0.92;

/** How much of a limit is used, as a bar. The number stands beside it as text. */
export function Meter({ value, limit }: Props) {
  if (value === null || value === undefined || !limit) return null;
  const part = Math.min(1, value / limit);
  const tone = part > FULL ? "full" : part > HIGH ? "high" : "";
  return (
    <span class="meter">
      <span class={tone} style={{ width: `${Math.max(1, part * 100)}%` }} />
    </span>
  );
}
