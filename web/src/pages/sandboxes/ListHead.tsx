import { Check } from "../../components/Check";
import { Icon } from "../../components/Icon";
import { canChange } from "../../state/session";
import type { Filter, SortBy } from "./filter";

type Props = {
  filter: Filter;
  onSort: (sort: SortBy) => void;
  isAllChosen: boolean;
  onChooseAll: (all: boolean) => void;
};

const COLUMNS: { label: string; sort: SortBy | null; name: string }[] = [
  { label: "Name", sort: "name", name: "name" },
  { label: "Image", sort: "image", name: "image" },
  { label: "Back end", sort: "backend", name: "walls" },
  { label: "CPU", sort: "cpu", name: "cpu" },
  { label: "Memory", sort: "memory", name: "memory" },
  { label: "Disk", sort: "disk", name: "disk" },
  { label: "Network", sort: null, name: "network" },
  { label: "Age", sort: "age", name: "age" },
  { label: "Expires", sort: "expiry", name: "expiry" },
  { label: "Made by", sort: "maker", name: "maker" },
];

/** The names of the columns; most sort the list. */
export function ListHead({ filter, onSort, isAllChosen, onChooseAll }: Props) {
  return (
    <div role="rowgroup" class="list-head-group">
      <div role="row" class="list-grid list-head" aria-rowindex={1}>
        <div role="columnheader" class="cell-check">
          {canChange.value && <Check label="Select all" hideLabel checked={isAllChosen} onChange={onChooseAll} />}
        </div>
        {COLUMNS.map((column) => (
          <div
            key={column.name}
            role="columnheader"
            class={`cell-${column.name}`}
            aria-sort={column.sort === filter.sort ? (filter.down ? "descending" : "ascending") : undefined}
          >
            {column.sort === null ? (
              column.label
            ) : (
              <button type="button" onClick={() => column.sort && onSort(column.sort)}>
                {column.label}
                {column.sort === filter.sort && <Icon name={filter.down ? "down" : "up"} />}
              </button>
            )}
          </div>
        ))}
        <div role="columnheader" class="cell-actions">
          <span class="visually-hidden">Actions</span>
        </div>
      </div>
    </div>
  );
}
