import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

type Props = {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: string;
  placeholder?: string;
  type?: "text" | "number" | "password";
  suggestions?: string[];
  options?: { value: string; label: string }[];
  lines?: number;
  wide?: boolean;
  required?: boolean;
  autoFocus?: boolean;
  pattern?: string;
  mono?: boolean;
};

/** One labelled input, select or text area. */
export function Field(props: Props) {
  const id = useId();
  return (
    <div class={`field ${props.wide ? "wide" : ""}`}>
      <label for={id}>{props.label}</label>
      <Control {...props} id={id} />
      {props.hint && (
        <span class="hint" id={`${id}-hint`}>
          {props.hint}
        </span>
      )}
    </div>
  );
}

function Control(props: Props & { id: string }): ComponentChildren {
  const common = {
    id: props.id,
    class: `input ${props.mono ? "mono" : ""}`,
    "aria-describedby": props.hint ? `${props.id}-hint` : undefined,
    required: props.required ?? false,
    autofocus: props.autoFocus ?? false,
  };
  if (props.options) {
    return (
      <select {...common} value={props.value} onChange={(event) => props.onInput(event.currentTarget.value)}>
        {props.options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    );
  }
  if (props.lines) {
    return (
      <textarea
        {...common}
        rows={props.lines}
        value={props.value}
        placeholder={props.placeholder}
        spellcheck={false}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
    );
  }
  return (
    <>
      <input
        {...common}
        type={(props.type ?? "text") as "text"}
        value={props.value}
        placeholder={props.placeholder}
        pattern={props.pattern}
        autocomplete="off"
        spellcheck={false}
        list={props.suggestions ? `${props.id}-list` : undefined}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
      {props.suggestions && (
        <datalist id={`${props.id}-list`}>
          {props.suggestions.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      )}
    </>
  );
}
