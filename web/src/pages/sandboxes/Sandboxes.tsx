import { signal } from "@preact/signals";
import { useLayoutEffect, useState } from "preact/hooks";
import { Button } from "../../components/Button";
import { Empty } from "../../components/Notice";
import { SearchInput } from "../../components/SearchInput";
import { Segments } from "../../components/Segments";
import { VirtualRows } from "../../components/VirtualRows";
import { LARGE, PHONE, useMedia, useTitle } from "../../lib/hooks";
import { route, setQuery } from "../../state/route";
import { sandboxes, sandboxesKnown } from "../../state/sandboxes";
import { canChange, may } from "../../state/session";
import { leaving } from "../../state/undo";
import { latestUsage, usage } from "../../state/usage";
import { BulkBar } from "./BulkBar";
import { CreateDialog } from "./CreateDialog";
import { choose, countStates, EMPTY_FILTER, type Filter, filterOf, queryOf, type StateFilter } from "./filter";
import { ListHead } from "./ListHead";
import { Row } from "./Row";

const ROW_HEIGHT = 44;
const PHONE_ROW_HEIGHT = 72;

/** Kept while the page shows something else, and in its address for Back and a reload. */
const filter = signal<Filter>(EMPTY_FILTER);
const selected = signal<ReadonlySet<string>>(new Set());

const STATES: { value: StateFilter; label: string }[] = [
  { value: "all", label: "All" },
  { value: "running", label: "Running" },
  { value: "paused", label: "Paused" },
  { value: "stopped", label: "Stopped" },
  { value: "failed", label: "Failed" },
];

export function Sandboxes() {
  useTitle("Sandboxes");
  // An address with a filter sets it; one without keeps what was chosen before.
  const { query } = route.value;
  useLayoutEffect(() => {
    if (query.size > 0) filter.value = filterOf(query);
    else setQuery(queryOf(filter.value));
  }, [query]);
  const [isCreating, setCreating] = useState(false);
  const isPhone = useMedia(PHONE);
  const mostLabels = useMedia(LARGE) ? 3 : 1;
  const sortsByUsage = ["cpu", "memory", "disk"].includes(filter.value.sort);
  // Only an order by usage has to be made anew with every sample.
  if (sortsByUsage) void usage.value;
  const rows = choose(
    sandboxes.value.values(),
    filter.value,
    leaving.value,
    sortsByUsage ? latestUsage : () => undefined,
  );
  const counts = countStates(sandboxes.value.values(), leaving.value);
  const chosen = rows.filter((sandbox) => selected.value.has(sandbox.id));
  const set = (change: Partial<Filter>) => {
    filter.value = { ...filter.value, ...change };
    setQuery(queryOf(filter.value));
  };
  const toggle = (id: string) => {
    const next = new Set(selected.value);
    if (!next.delete(id)) next.add(id);
    selected.value = next;
  };

  return (
    <div class="fill">
      <header class="page-head">
        <h1>Sandboxes</h1>
        <div class="actions row">
          {canChange.value && may("create") && (
            <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>
              New sandbox
            </Button>
          )}
        </div>
      </header>
      <div class="list-bar">
        <SearchInput label="Search name, image or label" value={filter.value.text} onInput={(text) => set({ text })} />
        <Segments
          label="State"
          value={filter.value.state}
          options={STATES.map((state) => ({ ...state, count: counts.get(state.value) ?? 0 }))}
          onChange={(state) => set({ state })}
        />
      </div>
      {chosen.length > 0 && <BulkBar chosen={chosen} clear={() => (selected.value = new Set())} />}
      {rows.length === 0 ? (
        <Nothing isFiltered={counts.size > 0} create={() => setCreating(true)} />
      ) : (
        <VirtualRows
          label="Sandboxes"
          place="sandboxes"
          rows={rows}
          rowHeight={isPhone ? PHONE_ROW_HEIGHT : ROW_HEIGHT}
          keyOf={(sandbox) => sandbox.id}
          head={
            <ListHead
              filter={filter.value}
              onSort={(sort) => set({ sort, down: sort === filter.value.sort ? !filter.value.down : false })}
              isAllChosen={chosen.length === rows.length}
              onChooseAll={(all) => (selected.value = new Set(all ? rows.map((row) => row.id) : []))}
            />
          }
          render={(sandbox) => (
            <Row
              sandbox={sandbox}
              isSelected={selected.value.has(sandbox.id)}
              onSelect={() => toggle(sandbox.id)}
              mostLabels={mostLabels}
            />
          )}
        />
      )}
      {isCreating && <CreateDialog onClose={() => setCreating(false)} />}
    </div>
  );
}

function Nothing({ isFiltered, create }: { isFiltered: boolean; create: () => void }) {
  if (!sandboxesKnown.value) return <Empty title="Loading sandboxes" />;
  if (isFiltered) return <Empty title="No sandbox matches">Change the search or the filter.</Empty>;
  return (
    <Empty title="No sandboxes yet">
      <p>A sandbox is a place of its own for an agent: files, processes and a network behind walls.</p>
      {canChange.value && may("create") && (
        <Button kind="primary" icon="plus" onClick={create}>
          New sandbox
        </Button>
      )}
    </Empty>
  );
}
