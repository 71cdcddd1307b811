import { Button } from "../../../components/Button";
import { Dialog } from "../../../components/Dialog";
import { Name } from "../../../components/Name";
import { plural } from "../../../lib/format";

type Props = { names: string[]; onClose: () => void; onReplace: () => void };

/** Asks before uploads take the place of files that are there. */
export function ReplaceDialog({ names, onClose, onReplace }: Props) {
  const replace = () => {
    onClose();
    onReplace();
  };
  return (
    <Dialog
      title={`Replace ${plural(names.length, "file")}?`}
      onClose={onClose}
      onSubmit={replace}
      foot={
        <>
          <Button onClick={onClose}>Keep what is there</Button>
          <Button kind="danger" submit>
            Replace
          </Button>
        </>
      }
    >
      <p>The directory has files of these names already:</p>
      <ul class="plain-list mono">
        {names.map((name) => (
          <li key={name}>
            <Name text={name} mono />
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
