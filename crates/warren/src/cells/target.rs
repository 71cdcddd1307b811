//! The sandbox that code runs in: an existing one, or a temporary one.

use std::{io::IsTerminal as _, time::Duration};

use frontends::rest::v1;
use sandbox::OnExpiry;

use crate::{
    arguments::SandboxArgs,
    client::Client,
    commands::{Context, lacks, warnings},
    error::CommandResult,
    interrupt::Signals,
    output,
};

#[derive(Debug, clap::Args)]
pub(crate) struct CodeSandboxArgs {
    /// Run in this sandbox (name or id) instead of a new one
    #[arg(long, short = 's', value_name = "SANDBOX", conflicts_with_all = ["PlainArgs", "GroundArgs", "InsideArgs", "keep"])]
    sandbox: Option<String>,
    /// Keep the new sandbox afterwards; a sandbox with a name is always kept
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    new: SandboxArgs,
}

/// A sandbox, and the client of its daemon.
#[derive(Debug)]
pub(crate) struct CodeSandbox {
    pub(crate) client: Client,
    pub(crate) sandbox: String,
    is_temporary: bool,
}

impl CodeSandboxArgs {
    /// `idle`: the daemon removes a temporary sandbox after it idles this long, in case this command dies.
    pub(crate) async fn open(
        &self,
        context: &Context,
        idle: Duration,
        signals: &mut Signals,
    ) -> CommandResult<CodeSandbox> {
        let client = signals.unless_interrupted(context.client()).await?;
        if let Some(sandbox) = &self.sandbox {
            return Ok(CodeSandbox { client, sandbox: sandbox.clone(), is_temporary: false });
        }
        let is_temporary = !self.keep && self.new.plain.name.is_none();
        let mut spec = self.new.spec(context.namespace.clone().unwrap_or_default())?;
        if is_temporary && self.new.plain.idle.is_none() {
            spec.lifetime.idle = Some(idle);
            spec.lifetime.on_expiry = OnExpiry::Remove;
        }
        let may_be_older = self.keep || spec.request_id.is_some();
        let unmake = async |made: v1::Sandbox, _signal| {
            if !may_be_older {
                client.remove(made.id.as_str(), true).await.ok();
            }
        };
        let made = signals.unless_unmade(client.create(&spec), None, unmake).await?;
        warnings::tell_beside_output(&made, &spec.limits);
        if std::io::stderr().is_terminal() && !is_temporary {
            output::note(&format!("using sandbox {}", made.name));
        }
        Ok(CodeSandbox { client, sandbox: made.id.to_string(), is_temporary })
    }
}

impl CodeSandbox {
    /// What hints call it.
    pub(crate) fn of(&self) -> lacks::Of<'_> {
        if self.is_temporary { lacks::Of::Temporary } else { lacks::Of::Named(&self.sandbox) }
    }

    /// A sandbox that could not be removed is worth a warning, but does not change the exit code.
    pub(crate) async fn close(&self) {
        if !self.is_temporary {
            return;
        }
        if let Err(error) = self.client.remove(&self.sandbox, true).await {
            output::warn(&format!(
                "sandbox {} was not removed; remove it with `warren rm -f {0}`",
                self.sandbox
            ));
            error.report(false);
        }
    }
}
