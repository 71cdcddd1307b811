import { useMemo } from "preact/hooks";
import { readTable } from "../../lib/htmlTable";
import { plainLine } from "../../lib/plain";
import { HtmlFrame } from "./HtmlFrame";

/** HTML by the workload: a table is read and drawn anew, cell by cell as text; anything else goes into a frame. */
export function HtmlOutput({ html }: { html: string }) {
  const table = useMemo(() => readTable(html), [html]);
  if (!table) return <HtmlFrame html={html} title="HTML that the code showed" />;
  return (
    <div class="table-scroll panel data-table" tabIndex={0} role="region" aria-label="Table">
      <table class="table">
        <thead>
          {table.head.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <th key={column} class="number">
                  {plainLine(cell)}
                </th>
              ))}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.body.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td key={column} class="number">
                  {plainLine(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {table.isCut && <p class="faint small panel-body">The table is longer than what is shown.</p>}
    </div>
  );
}
