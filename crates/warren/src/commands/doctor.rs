//! `warren doctor`

use sandbox::{Error, ErrorKind};

use super::Context;
use crate::error::CommandResult;

/// Tell what works on this machine, what does not, and the command that mends it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: &Context, _: Args) -> CommandResult {
    Err(Error::new(ErrorKind::Unsupported, "not built yet").into())
}
