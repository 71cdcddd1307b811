const WIDTH = 62;
const HEIGHT = 20;

/** A small line of the last values. Its meaning stands beside it as text. */
export function Sparkline({ values, least }: { values: readonly number[]; least: number }) {
  if (values.length < 2) return <svg class="spark" aria-hidden="true" />;
  const most = Math.max(least, ...values);
  const step = WIDTH / (values.length - 1);
  const line = values
    .map((value, index) => `${(index * step).toFixed(1)},${(HEIGHT - (value / most) * (HEIGHT - 2) - 1).toFixed(1)}`)
    .join("L");
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true">
      <path class="area" d={`M${line}L${WIDTH},${HEIGHT}L0,${HEIGHT}Z`} />
      <path d={`M${line}`} />
    </svg>
  );
}
