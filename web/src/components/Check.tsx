type Props = { label: string; checked: boolean; onChange: (checked: boolean) => void; hideLabel?: boolean };

export function Check({ label, checked, onChange, hideLabel }: Props) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.currentTarget.checked)} />
      <span class={hideLabel ? "visually-hidden" : undefined}>{label}</span>
    </label>
  );
}
