import { useEffect, useRef } from "preact/hooks";
import { colour, paint } from "../../state/theme";
import type { ChartHandle } from "./draw";

export type Line = { label: string; token: "--chart-1" | "--chart-2" | "--chart-3"; values: (number | null)[] };

type Props = {
  title: string;
  value: string;
  /** Seconds since 1970. */
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  /** The top of the scale when the values are small. */
  least?: number;
  /** Values are sizes: the scale goes by powers of two. */
  isBytes?: boolean;
};

/** A line chart with its latest value in words. The drawing library comes when the first chart is shown. */
export function Chart({ title, value, times, lines, format, least, isBytes }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<ChartHandle | null>(null);
  const data = [times, ...lines.map((line) => line.values)];
  const latest = useRef(data);
  latest.current = data;
  const painted = paint.value;

  useEffect(() => {
    let isGone = false;
    void import("./draw").then(({ draw }) => {
      if (isGone || !host.current) return;
      const colours = {
        lines: lines.map((line) => colour(line.token)),
        grid: colour("--line"),
        text: colour("--text-faint"),
      };
      chart.current = draw(
        host.current,
        latest.current,
        lines.map((line) => line.label),
        colours,
        format,
        least ?? 0,
        isBytes ?? false,
      );
    });
    return () => {
      isGone = true;
      chart.current?.remove();
      chart.current = null;
    };
  }, [painted, lines.length]);

  useEffect(() => chart.current?.update(data));

  return (
    <figure class="panel panel-body" aria-label={`${title}: ${value}`}>
      <figcaption class="chart-head">
        <span class="faint">{title}</span>
        <span class="value">{value}</span>
      </figcaption>
      <div class="chart" ref={host} aria-hidden="true" />
    </figure>
  );
}
