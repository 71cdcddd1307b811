import { plainLine } from "../lib/plain";

/** A name from a sandbox or its maker: one line, with invisible characters shown and its direction kept to itself. */
export function Name({ text, mono }: { text: string; mono?: boolean }) {
  const shown = plainLine(text);
  return (
    <bdi dir="ltr" class={mono ? "mono" : undefined} title={shown}>
      {shown}
    </bdi>
  );
}
