import { inert } from "./inert";

export type Table = { head: string[][]; body: string[][]; isCut: boolean };

const MAX_ROWS = 500;
const MAX_COLUMNS = 100;
const MAX_CELL = 400;

/** Reads HTML that is one table and little else. Only its text is taken. */
export function readTable(html: string): Table | null {
  const tables = inert(html).querySelectorAll("table");
  const [table] = tables;
  if (!table || tables.length !== 1) return null;
  const head: string[][] = [];
  const body: string[][] = [];
  const rows = [...table.rows];
  for (const row of rows.slice(0, MAX_ROWS)) {
    const cells = [...row.cells]
      .slice(0, MAX_COLUMNS)
      .map((cell) => (cell.textContent ?? "").trim().slice(0, MAX_CELL));
    if (row.parentElement?.tagName === "THEAD") head.push(cells);
    else body.push(cells);
  }
  return { head, body, isCut: rows.length > MAX_ROWS };
}
