//! Checks that the records and the files in the data directory agree.

use std::path::{Path, PathBuf};

use store::{StoreError, Survey};

use crate::error::in_words;

use super::Check;

const NAME: &str = "records";
const RECOVER: &str = "warren doctor --recover";

pub(crate) fn check_records(home: &Path) -> Check {
    let error = match Survey::of(home) {
        Ok(survey) => return judge(&survey),
        Err(error) => error,
    };
    let hint = match (&error, error.next()) {
        (StoreError::Unreadable { .. }, _) => RECOVER.to_owned(),
        (_, Some(next)) => in_words(&next),
        (_, None) => "See the daemon's log.".to_owned(),
    };
    match error {
        // They pass.
        StoreError::Locked { .. } | StoreError::NoSpace { .. } => Check::weak(NAME, error.to_string(), hint),
        // No daemon of this version can open it.
        _ => Check::missing(NAME, error.to_string(), hint),
    }
}

fn judge(survey: &Survey) -> Check {
    let Survey { has_database, is_of_home, described, undescribed } = survey;
    if !described.is_empty() {
        let detail = format!(
            "{} of sandboxes and volumes have no record, but can be recovered from their manifests: {}",
            described.len(),
            list(described)
        );
        return Check::weak(NAME, detail, RECOVER);
    }
    // The database does not know the remains of an interrupted create; the next daemon removes them.
    if !is_of_home && !undescribed.is_empty() {
        let detail = format!(
            "{} of sandboxes and volumes have neither a record nor a manifest, and are left alone: {}",
            undescribed.len(),
            list(undescribed)
        );
        return Check::weak(NAME, detail, RECOVER);
    }
    match has_database {
        true => Check::works(NAME, "the database is intact and complete"),
        false => Check::works(NAME, "none yet"),
    }
}

/// Maximum number of paths in one line.
const MAX_NAMED: usize = 4;

fn list(paths: &[PathBuf]) -> String {
    let mut named: Vec<_> = paths.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
    if paths.len() > MAX_NAMED {
        named.push(format!("{} more", paths.len() - MAX_NAMED));
    }
    named.join(", ")
}
