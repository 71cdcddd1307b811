import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { Button } from "./Button";

type Props = {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  foot?: ComponentChildren;
  /** Makes the dialog a form, sent by Enter. */
  onSubmit?: () => void;
  wide?: boolean;
  /** Shows what is shown only once: neither a click beside it nor Escape closes it. */
  sticky?: boolean;
};

/**
 * A modal dialog: the browser keeps the focus in it, closes it with Escape and gives the focus back. A click beside it
 * closes it too, unless that would lose what was typed.
 */
export function Dialog({ title, onClose, children, foot, onSubmit, wide, sticky }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  /** Whether the click began beside the dialog: one that ends there may have selected text. */
  const beganBeside = useRef(false);
  const closesBeside = !sticky && !onSubmit;
  const heading = useId();
  // Undone while the dialog is still in the page: only then does the browser give the focus back, and before the next
  // key.
  useLayoutEffect(() => {
    const dialog = element.current;
    const opener = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);

  const inside = (
    <>
      <div class="dialog-head">
        <h2 id={heading}>{title}</h2>
        <Button kind="quiet" icon="close" label="Close" onClick={onClose} />
      </div>
      <div class="dialog-body">{children}</div>
      {foot && <div class="dialog-foot">{foot}</div>}
    </>
  );
  const submit = (event: Event) => {
    event.preventDefault();
    onSubmit?.();
  };
  return (
    <dialog
      ref={element}
      class={wide ? "wide" : undefined}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        if (!sticky) onClose();
      }}
      // A browser asks once before it closes a dialog, and not a second time.
      onKeyDown={(event) => sticky && event.key === "Escape" && event.preventDefault()}
      onPointerDown={(event) => (beganBeside.current = event.target === element.current)}
      onClick={(event) => closesBeside && beganBeside.current && event.target === element.current && onClose()}
    >
      {onSubmit ? (
        <form class="dialog" onSubmit={submit}>
          {inside}
        </form>
      ) : (
        <div class="dialog">{inside}</div>
      )}
    </dialog>
  );
}
