import { Icon } from "./Icon";

type Props = { label: string; value: string; onInput: (value: string) => void };

/** A search box. The key `/` moves to the first one of the page. */
export function SearchInput({ label, value, onInput }: Props) {
  return (
    <div class="search">
      <Icon name="search" />
      <input
        class="input"
        type="search"
        aria-label={label}
        placeholder={label}
        value={value}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </div>
  );
}
