//! Planted secrets: in the daemon's environment, its directory and keys. They must not appear anywhere else.

use std::fs;

use super::{
    Seen, inside,
    stage::{CANARY_TEXT, SECRET_FILE, Stage},
};
use crate::error::CommandResult;

/// Returns the secrets that must not be found, with a name for each.
fn planted(stage: &Stage) -> Vec<(&'static str, &str)> {
    vec![
        ("the daemon's variable", stage.secret.as_str()),
        ("a key", stage.key.as_str()),
        ("another key", stage.other_key.as_str()),
        ("the read-only key", stage.read_only_key.as_str()),
        ("the canary", CANARY_TEXT),
    ]
}

fn search(stage: &Stage, bytes: &[u8], place: &str) -> Seen {
    let found: Vec<String> = planted(stage)
        .into_iter()
        .filter(|(_, secret)| !secret.is_empty() && contains(bytes, secret.as_bytes()))
        .map(|(name, _)| format!("{name} is in {place}"))
        .collect();
    Seen::unless(&found, format!("none of them in {} bytes of {place}", bytes.len()))
}

pub(super) fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

pub(super) async fn environment(stage: &Stage) -> CommandResult<Seen> {
    let report = inside::run(stage, &stage.sandbox, "secrets-environment", &[]).await?;
    let text = report.facts.get("text").and_then(serde_json::Value::as_str).unwrap_or_default();
    Ok(search(stage, text.as_bytes(), "variables and command lines inside"))
}

pub(super) async fn files(stage: &Stage) -> CommandResult<Seen> {
    let names = [SECRET_FILE.to_owned()];
    Ok(inside::judge(&inside::run(stage, &stage.sandbox, "secrets-files", &names).await?))
}

pub(super) async fn log(stage: &Stage) -> CommandResult<Seen> {
    let log = fs::read(stage.home().join("attack.log"))?;
    Ok(search(stage, &log, "the daemon's log"))
}

pub(super) async fn audit(stage: &Stage) -> CommandResult<Seen> {
    let calls = stage.operator.calls(None, Some(1000), None).await?;
    let text = serde_json::to_vec(&calls).unwrap_or_default();
    Ok(search(stage, &text, "the audit"))
}

/// All answers to other keys in this run, most of them errors.
pub(super) async fn answers(stage: &Stage) -> CommandResult<Seen> {
    Ok(search(stage, &stage.said(), "answers to keys"))
}

/// The daemon stores only hashes of keys.
pub(super) async fn database(stage: &Stage) -> CommandResult<Seen> {
    let mut bytes = Vec::new();
    for name in ["warren.db", "warren.db-wal"] {
        bytes.extend(fs::read(stage.home().join(name)).unwrap_or_default());
    }
    Ok(search(stage, &bytes, "the database"))
}
