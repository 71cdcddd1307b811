import type { ComponentChildren } from "preact";
import { Icon, type IconName } from "./Icon";

type Props = {
  onClick?: (event: MouseEvent) => void;
  icon?: IconName;
  children?: ComponentChildren;
  /** Names a button that shows only an icon. */
  label?: string;
  kind?: "plain" | "primary" | "danger" | "quiet";
  small?: boolean;
  disabled?: boolean;
  pressed?: boolean;
  submit?: boolean;
  title?: string;
};

export function Button(props: Props) {
  const classes = ["button", props.kind ?? "plain"];
  if (props.small) classes.push("small");
  if (!props.children) classes.push("icon");
  return (
    <button
      type={props.submit ? "submit" : "button"}
      class={classes.join(" ")}
      disabled={props.disabled ?? false}
      aria-label={props.label}
      aria-pressed={props.pressed}
      title={props.title ?? props.label}
      onClick={props.onClick}
    >
      {props.icon && <Icon name={props.icon} />}
      {props.children}
    </button>
  );
}
