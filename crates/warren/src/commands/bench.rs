//! `warren bench`

use sandbox::{Error, ErrorKind};

use super::Context;
use crate::error::CommandResult;

/// Measure how fast sandboxes are on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: &Context, _: Args) -> CommandResult {
    Err(Error::new(ErrorKind::Unsupported, "the bench is not part of this build yet").into())
}
