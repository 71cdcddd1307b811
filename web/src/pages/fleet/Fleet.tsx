import { readFleet } from "../../api/fleet";
import { ErrorNotice } from "../../components/Notice";
import { Page } from "../../components/Page";
import { useLoaded } from "../../lib/hooks";
import { useEveryTenSeconds } from "../../lib/useChanges";
import { canChange, may } from "../../state/session";
import { Backends } from "./Backends";
import { DiskPanel } from "./DiskPanel";
import { Images } from "./Images";
import { Totals } from "./Totals";
import { useLiveTotals } from "./useLiveTotals";
import { Volumes } from "./Volumes";

/** The daemon as a whole. The past is read once; from then on the stream's samples are added up. */
export function Fleet() {
  const fleet = useLoaded("fleet", readFleet);
  const live = useLiveTotals(fleet.value);
  useEveryTenSeconds(fleet.reload);
  return (
    <Page title="Fleet">
      {fleet.error !== null && <ErrorNotice error={fleet.error} retry={fleet.reload} />}
      {fleet.value && live && (
        <>
          <Totals totals={live.totals} history={live.history} />
          <div class="columns">
            <Backends backends={fleet.value.backends} />
            <DiskPanel fleet={fleet.value} />
          </div>
        </>
      )}
      {may("images") && <Images canChange={may("manageImages")} />}
      {may("volumes") && <Volumes canChange={canChange.value} />}
    </Page>
  );
}
