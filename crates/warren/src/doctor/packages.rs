//! Shows which package indexes are used.

use std::path::Path;

use sandbox::Result;

use super::Check;
use crate::{config::Config, directories::Directories, error::in_words, packages::Indexes};

pub(crate) fn check_packages(named: Option<&Path>, directories: &Directories) -> Check {
    let name = "packages";
    match found(named, directories) {
        Ok(detail) => Check::works(name, detail),
        Err(error) => {
            let hint = error.next().map_or_else(|| "Correct the configuration file.".to_owned(), in_words);
            Check::weak(name, error.to_string(), hint)
        }
    }
}

fn found(named: Option<&Path>, directories: &Directories) -> Result<String> {
    let config = Config::load(named)?;
    let whose = match &config.path {
        Some(path) => format!(", from {} and this host's settings", path.display()),
        None => String::new(),
    };
    if config.packages_disabled {
        return Ok(format!("disabled{whose}"));
    }
    let indexes = Indexes::find(&config, &directories.home)?;
    let summary = format!("{}{whose}", indexes.describe());
    // Notes are sentences.
    Ok(if indexes.notes.is_empty() { summary } else { format!("{summary}. {}", indexes.notes.join(" ")) })
}
