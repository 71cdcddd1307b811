//! The sandbox that code runs in: one that is there, or one for the occasion.

use std::{io::IsTerminal as _, time::Duration};

use sandbox::OnExpiry;

use crate::{arguments::SandboxArgs, client::Client, commands::Context, error::CommandResult, output};

#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Run in this sandbox, by name or id, instead of a new one
    #[arg(long, short = 's', value_name = "SANDBOX", conflicts_with_all = ["PlainArgs", "GroundArgs", "InsideArgs", "keep"])]
    sandbox: Option<String>,
    /// Keep the new sandbox afterwards; one with a name is kept anyway
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    new: SandboxArgs,
}

/// A sandbox, and the daemon that has it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) sandbox: String,
    is_temporary: bool,
}

impl PlaceArgs {
    /// `idle`: the daemon removes a temporary sandbox after idling so long, should this command die first.
    pub(crate) async fn open(&self, context: &Context, idle: Duration) -> CommandResult<Place> {
        let client = context.client().await?;
        if let Some(sandbox) = &self.sandbox {
            return Ok(Place { client, sandbox: sandbox.clone(), is_temporary: false });
        }
        let is_temporary = !self.keep && self.new.plain.name.is_none();
        let mut spec = self.new.spec(context.namespace.clone().unwrap_or_default())?;
        if is_temporary && self.new.plain.idle.is_none() {
            spec.lifetime.idle = Some(idle);
            spec.lifetime.on_expiry = OnExpiry::Remove;
        }
        let made = client.create(&spec).await?;
        if std::io::stderr().is_terminal() {
            made.warnings.iter().for_each(|warning| output::warn(warning));
            if !is_temporary {
                output::note(&format!("this is sandbox {}", made.name));
            }
        }
        Ok(Place { client, sandbox: made.id.to_string(), is_temporary })
    }
}

impl Place {
    /// A sandbox that could not be removed is worth a word, not the code's exit code.
    pub(crate) async fn close(&self) {
        if !self.is_temporary {
            return;
        }
        if let Err(error) = self.client.remove(&self.sandbox, true).await {
            output::warn(&format!("sandbox {} was not removed; `warren rm -f {0}` does it", self.sandbox));
            error.report(false);
        }
    }
}
