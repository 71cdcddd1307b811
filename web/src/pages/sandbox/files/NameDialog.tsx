import { useState } from "preact/hooks";
import { wordsOf } from "../../../api/errors";
import { Button } from "../../../components/Button";
import { Dialog } from "../../../components/Dialog";
import { Field } from "../../../components/Field";
import { Notice } from "../../../components/Notice";
import { plainText } from "../../../lib/plain";

type Props = {
  title: string;
  initial?: string;
  onClose: () => void;
  onName: (name: string) => Promise<unknown>;
  onDone: (name: string) => void;
};

/** Asks for a name and does something with it. */
export function NameDialog({ title, initial, onClose, onName, onDone }: Props) {
  const [name, setName] = useState(initial ?? "");
  const [error, setError] = useState<string | null>(null);
  const isName = !/^\.{0,2}$/.test(name.trim()) && !name.includes("/");
  const submit = async () => {
    if (!isName) return;
    try {
      await onName(name.trim());
    } catch (refused) {
      return setError(wordsOf(refused));
    }
    onClose();
    onDone(name.trim());
  };
  return (
    <Dialog
      title={title}
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" submit disabled={!isName}>
            Save
          </Button>
        </>
      }
    >
      {error && <Notice tone="bad">{plainText(error)}</Notice>}
      <Field label="Name" value={name} onInput={setName} hint="One name, without a slash." autoFocus mono />
    </Dialog>
  );
}
