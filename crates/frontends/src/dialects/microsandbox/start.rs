//! `sandbox_start` and `sandbox_stop`.

use std::time::Duration;

use engine::{Ensured, SandboxIdentity, SandboxRef};
use sandbox::{Error, ErrorKind, Language, SandboxState};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    config::{Config, LABEL},
    stand_in::lacks_language,
    target::Target,
};
use crate::{
    dialects::python,
    mcp::{Answer, Call, Failure, ToolResult, create},
};

/// How long a sandbox that others start may take.
const START_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StartArguments {
    /// Name of the sandbox
    sandbox: String,
    /// Namespace of the sandbox
    namespace: String,
    config: Option<Config>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StopArguments {
    /// Name of the sandbox
    sandbox: String,
    /// Namespace of the sandbox
    namespace: String,
}

pub(super) async fn start(call: Call, arguments: StartArguments) -> ToolResult<String> {
    let target = Target::new(&call, &arguments.sandbox, &arguments.namespace)?;
    let config = arguments.config.unwrap_or_default();
    // Refused before anything is started for it.
    config.fields(&target.name)?;
    for other in config.depends_on.iter().flatten() {
        start_other(&target, other).await?;
    }
    let identity = SandboxIdentity { which: Some(target.which.clone()), ..SandboxIdentity::default() };
    let make = make(&target, &config);
    let found = target.call.engine().ensure_exists(&target.call.who, &identity, make).await?;
    if !found.is_new {
        refuse_other(&target, &config, &found)?;
        run(&target.call, &target.which).await?;
    }
    // An answer of this dialect is one text: what else is to be known follows in it.
    let mut told = format!("Sandbox {} started successfully", target.name);
    if found.is_new && !found.view.warnings.is_empty() {
        told = format!("{told}. {}", found.view.warnings.join(" "));
    }
    Ok(Answer::new(told))
}

async fn make(target: &Target, config: &Config) -> Result<Ensured, Failure> {
    let prepared = create::prepare(&target.call, config.fields(&target.name)?)?;
    let made = create::make(&target.call, prepared).await?;
    let Some(language) = config.stands_for() else { return Ok(made) };
    let found = target.call.engine().languages(&target.call.who, &target.which).await;
    if found.as_ref().is_ok_and(|found| found.iter().any(|found| found.name == language.as_str())) {
        if language == Language::Python {
            python::add(target.call.engine(), &target.call.who, &target.which).await;
        }
        return Ok(made);
    }
    create::unmake(&target.call, &made.view.id).await;
    found?;
    Err(lacks_language(config.image.as_deref().unwrap_or_default(), language).into())
}

/// A sandbox keeps what it was made with. Another configuration is refused, because it would have no effect.
fn refuse_other(target: &Target, config: &Config, found: &Ensured) -> Result<(), Failure> {
    let is_same = || found.view.spec.labels.get(LABEL) == Some(&config.fingerprint());
    if config.is_empty() || is_same() {
        return Ok(());
    }
    let message = format!(
        "sandbox {:?} exists with another configuration; start it without config, choose another name, or have it \
         removed (`warren rm {}`)",
        target.name, target.name
    );
    Err(Error::new(ErrorKind::AlreadyExists, message).into())
}

async fn start_other(target: &Target, name: &str) -> Result<(), Failure> {
    let which = target.call.sandbox(name)?;
    let ran = run(&target.call, &which).await;
    ran.map_err(|failure| failure.reworded(|words| format!("depends_on {name:?}: {words}")))
}

/// Makes sure that a sandbox runs.
async fn run(call: &Call, which: &SandboxRef) -> Result<(), Failure> {
    let (engine, who) = (call.engine(), &call.who);
    engine.ensure_running(who, which).await?;
    match engine.sandbox(who, which).await?.state {
        SandboxState::Running => {}
        SandboxState::Paused => drop(engine.resume_sandbox(who, which).await?),
        SandboxState::Creating => {
            engine.wait_sandbox(who, which, SandboxState::Running, Some(START_PATIENCE)).await?;
        }
        state @ (SandboxState::Stopping | SandboxState::Stopped | SandboxState::Failed) => {
            let message = format!("sandbox {which} is {state} and was not started");
            return Err(Error::new(ErrorKind::WrongState, message).in_state(state).into());
        }
    }
    Ok(())
}

pub(super) async fn stop(call: Call, arguments: StopArguments) -> ToolResult<String> {
    let target = Target::new(&call, &arguments.sandbox, &arguments.namespace)?;
    target.call.engine().stop_sandbox(&target.call.who, &target.which, None).await?;
    Ok(Answer::new(format!("Sandbox {} stopped successfully", target.name)))
}
