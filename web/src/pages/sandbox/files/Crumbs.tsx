import { Name } from "../../../components/Name";
import { baseName, steps } from "../../../lib/paths";
import { fileAddress } from "./Files";

/** The way from the root to a path. */
export function Crumbs({ sandbox, path }: { sandbox: string; path: string }) {
  const all = steps(path);
  return (
    <nav class="crumbs mono" aria-label="Path">
      {all.map((step, index) => (
        <span key={step}>
          {index > 1 && <span class="faint">/</span>}
          <a href={fileAddress(sandbox, step)} aria-current={index === all.length - 1 ? "location" : undefined}>
            <Name text={index === 0 ? "/" : baseName(step)} mono />
          </a>
        </span>
      ))}
    </nav>
  );
}
