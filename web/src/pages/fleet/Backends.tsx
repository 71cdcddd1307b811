import type { BackendHealth } from "../../api/fleet";
import { Panel } from "../../components/Panel";
import { plural } from "../../lib/format";
import { plainText } from "../../lib/plain";
import { wallsName } from "../../lib/walls";

/** The back ends with their health, and what this host does not let them do. */
export function Backends({ backends }: { backends: BackendHealth[] }) {
  return (
    <Panel title="Back ends" flush>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Back ends">
        <table class="table">
          <tbody>
            {backends.map((backend) => (
              <tr key={backend.name}>
                <td>
                  <strong>{backend.name}</strong>
                  {backend.isDefault && <span class="faint small"> default</span>}
                  {backend.missing.map((sentence) => (
                    <div key={sentence} class="small warn">
                      {plainText(sentence)}
                    </div>
                  ))}
                </td>
                <td class="soft">{backend.walls ? wallsName(backend.walls) : ""}</td>
                <td class="number soft">
                  {plural(backend.sandboxes, "sandbox", "sandboxes")}, {backend.running} running
                </td>
                <td class="actions">
                  <span class={`badge ${backend.healthy ? "good" : "bad"}`}>
                    {backend.healthy ? "healthy" : `${backend.unreachable} unreachable`}
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
