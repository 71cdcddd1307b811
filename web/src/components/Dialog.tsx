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
};

/** A modal dialog: the browser keeps the focus in it, closes it with Escape and gives the focus back. */
export function Dialog({ title, onClose, children, foot, onSubmit, wide }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  // Undone while the dialog is still in the page: only then does the browser give the focus back, and before the next key.
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
        onClose();
      }}
      onClick={(event) => event.target === element.current && onClose()}
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
