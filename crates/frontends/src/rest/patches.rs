//! Files of the host in what is asked of a new sandbox: for the daemon's owner alone, who could read them anyway.

use std::collections::BTreeMap;

use engine::{CreateRequest, Principal};
use sandbox::{Patch, Result, SandboxSpec};

use crate::hostfs::{Report, Source};

/// Opens what the patches copy. For others nothing is opened, and the engine refuses what has no source.
pub(super) async fn open(who: &Principal, spec: SandboxSpec) -> Result<(CreateRequest, Vec<Report>)> {
    let (mut sources, mut reports) = (BTreeMap::new(), Vec::new());
    for (index, patch) in spec.patches.iter().enumerate().filter(|_| who.is_owner) {
        let Some(host_path) = patch.host_path() else { continue };
        let opened = async {
            let source = Source::open_as_owner(host_path).await?;
            source.check_kind(matches!(patch, Patch::CopyDir { .. }))?;
            Ok(source)
        };
        let opened: Result<Source> = opened.await;
        let at_place = |message: &dyn std::fmt::Display| format!("patches[{index}]: {message}");
        let (source, report) = opened.map_err(|error| error.reworded(at_place))?.into_patch();
        sources.insert(index, source);
        reports.push(report);
    }
    Ok((CreateRequest { spec, sources, ..CreateRequest::default() }, reports))
}

/// Returns warnings about entries that the copies left out.
pub(super) fn warnings(reports: &[Report]) -> impl Iterator<Item = String> {
    reports.iter().filter_map(|report| report.take()?.ok()?.warning())
}
