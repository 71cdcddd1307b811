//! Whether the records and the files of the data directory agree.

use std::path::{Path, PathBuf};

use store::{StoreError, Survey};

use crate::error::in_words;

use super::Check;

const NAME: &str = "records";
const RECOVER: &str = "warren doctor --recover";

pub(crate) fn check_records(home: &Path) -> Check {
    match Survey::of(home) {
        Ok(survey) => judge(&survey),
        Err(error @ StoreError::Unreadable { .. }) => Check::missing(NAME, error.to_string(), RECOVER),
        Err(error) => {
            let hint =
                error.next().map_or_else(|| "Look at the daemon's log.".to_owned(), |next| in_words(&next));
            Check::weak(NAME, error.to_string(), hint)
        }
    }
}

fn judge(survey: &Survey) -> Check {
    let Survey { has_database, is_of_home, described, undescribed } = survey;
    if !described.is_empty() {
        let detail = format!(
            "{} of sandboxes and volumes have no record, and manifests to make them from: {}",
            described.len(),
            list(described)
        );
        return Check::weak(NAME, detail, RECOVER);
    }
    // The home's own database does not know what a create left that was cut short; the next daemon sweeps it.
    if !is_of_home && !undescribed.is_empty() {
        let detail = format!(
            "{} of sandboxes and volumes have neither record nor manifest, and are left alone: {}",
            undescribed.len(),
            list(undescribed)
        );
        return Check::weak(NAME, detail, RECOVER);
    }
    match has_database {
        true => Check::works(NAME, "the database is whole and knows all that is there"),
        false => Check::works(NAME, "none yet"),
    }
}

/// Most paths that a line names.
const MAX_NAMED: usize = 4;

fn list(paths: &[PathBuf]) -> String {
    let mut named: Vec<_> = paths.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
    if paths.len() > MAX_NAMED {
        named.push(format!("{} more", paths.len() - MAX_NAMED));
    }
    named.join(", ")
}
