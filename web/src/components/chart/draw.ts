import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clockTime } from "../../lib/format";

export type ChartHandle = { update: (data: (number | null)[][]) => void; remove: () => void };
type Colours = { lines: string[]; grid: string; text: string };

const HEIGHT = 132;
/** Steps of a scale of sizes: 1, 2, 4 … bytes. */
const POWERS = Array.from({ length: 50 }, (_, index) => 2 ** index);
const FONT = '11px "Inter Variable", system-ui, sans-serif';

/** Draws lines over time into an element and follows its width. */
export function draw(
  host: HTMLElement,
  data: (number | null)[][],
  labels: string[],
  colours: Colours,
  format: (value: number) => string,
  least: number,
  isBytes: boolean,
): ChartHandle {
  const axis = { stroke: colours.text, font: FONT, ticks: { show: false }, grid: { stroke: colours.grid, width: 1 } };
  const plot = new uPlot(
    {
      width: Math.max(120, host.clientWidth),
      height: HEIGHT,
      cursor: { y: false, points: { size: 6 } },
      legend: { show: false },
      // The last time under the scale is centred below the last point.
      padding: [8, 28, 0, 0],
      scales: { y: { range: (_, __, most) => [0, Math.max(least, (most ?? 0) * 1.15, 1e-9)] } },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 22,
          space: 80,
          values: (_, splits) => splits.map((split) => clockTime(split * 1000)),
        },
        {
          ...axis,
          size: 62,
          space: 34,
          ...(isBytes && { incrs: POWERS }),
          values: (_, splits) => splits.map((split) => format(split)),
        },
      ],
      series: [
        {},
        ...labels.map((label, index) => ({
          label,
          stroke: colours.lines[index] ?? colours.text,
          width: 1.5,
          fill: index === 0 ? fade(colours.lines[index] ?? colours.text) : "transparent",
          points: { show: false },
        })),
      ],
    },
    data as uPlot.AlignedData,
    host,
  );
  const observer = new ResizeObserver(() => plot.setSize({ width: Math.max(120, host.clientWidth), height: HEIGHT }));
  observer.observe(host);
  return {
    update: (next) => plot.setData(next as uPlot.AlignedData),
    remove: () => {
      observer.disconnect();
      plot.destroy();
    },
  };
}

function fade(colour: string): string {
  return colour.replace(/^rgb\(([^)]+)\)$/, "rgb($1 / 0.1)").replaceAll(",", " ");
}
