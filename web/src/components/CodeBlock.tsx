import { plainText } from "../lib/plain";
import { CopyButton } from "./CopyButton";

/** Text to copy. */
export function CodeBlock({ text, label }: { text: string; label: string }) {
  return (
    <div class="code-block">
      <pre tabIndex={0} aria-label={label}>
        {plainText(text)}
      </pre>
      <CopyButton text={text} label={`Copy ${label}`} />
    </div>
  );
}
