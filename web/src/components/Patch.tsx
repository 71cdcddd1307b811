import { plainText } from "../lib/plain";

const MAX_LINES = 5000;

function toneOf(line: string): string {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ") || line.startsWith("@@"))
    return "place";
  if (line.startsWith("+")) return "added";
  if (line.startsWith("-")) return "removed";
  return "";
}

/** A patch with its lines in colour; the signs at their beginnings say the same. */
export function Patch({ text }: { text: string }) {
  return (
    <div class="patch" tabIndex={0} role="region" aria-label="Patch">
      {plainText(text)
        .split("\n")
        .slice(0, MAX_LINES)
        .map((line, index) => (
          <div key={index} class={toneOf(line)}>
            {line || " "}
          </div>
        ))}
    </div>
  );
}
