import type { Fleet } from "../../api/fleet";
import { get } from "../../api/client";
import type { ImagesUsage } from "../../api/types";
import { Meter } from "../../components/Meter";
import { Panel } from "../../components/Panel";
import { bytes, plural } from "../../lib/format";
import { useLoaded } from "../../lib/hooks";
import { useCallsDone, useEveryTenSeconds } from "../../lib/useChanges";

/** The disk of the daemon's data, what images take of it, and the cache of packages. */
export function DiskPanel({ fleet }: { fleet: Fleet }) {
  const images = useLoaded("images usage", () => get<ImagesUsage>("/v1/images/usage"));
  useCallsDone((call) => /image|build/i.test(call.action), images.reload);
  useEveryTenSeconds(images.reload);
  const { disk, packagesCache } = fleet;
  return (
    <Panel title="Disk">
      <dl class="facts">
        <dt>File system</dt>
        <dd class="stack tight">
          {disk ? `${bytes(disk.totalBytes - disk.freeBytes)} used, ${bytes(disk.freeBytes)} free` : "unknown"}
          {disk && <Meter value={disk.totalBytes - disk.freeBytes} limit={disk.totalBytes} />}
        </dd>
        <dt>Images</dt>
        <dd>
          {images.value
            ? `${plural(images.value.images, "image")}, ${bytes(images.value.layerBytes + images.value.blobBytes)}`
            : "–"}
        </dd>
        <dt>Package cache</dt>
        <dd>{packagesCache ? `${plural(packagesCache.files, "file")}, ${bytes(packagesCache.bytes)}` : "empty"}</dd>
        <dt>Most sandboxes</dt>
        <dd>{fleet.maxSandboxes.toLocaleString()}</dd>
      </dl>
    </Panel>
  );
}
