import { useState } from "preact/hooks";
import { sayError } from "../state/toasts";
import { Button } from "./Button";

const SHOWN_MS = 1500;

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), SHOWN_MS);
    } catch (error) {
      sayError("Not copied (browsers allow it only on https and localhost)", error);
    }
  };
  return (
    <Button kind="quiet" small icon={isCopied ? "check" : "copy"} label={isCopied ? "Copied" : label} onClick={copy} />
  );
}
