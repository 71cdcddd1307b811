type Option<T extends string> = { value: T; label: string; count?: number };
type Props<T extends string> = { label: string; value: T; options: Option<T>[]; onChange: (value: T) => void };

/** A choice of a few, all in sight. */
export function Segments<T extends string>({ label, value, options, onChange }: Props<T>) {
  return (
    <div class="segments" role="group" aria-label={label} tabIndex={-1}>
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          aria-pressed={option.value === value}
          onClick={() => onChange(option.value)}
        >
          {option.label}
          {option.count !== undefined && <span class="count">{option.count.toLocaleString()}</span>}
        </button>
      ))}
    </div>
  );
}
