//! Contexts: interpreters kept alive inside a sandbox. A cell itself is an exec (`ExecSpec::cell`), with everything
//! that an exec has: an id, a ledger, signals, a time limit.

use std::collections::BTreeMap;

use guest_protocol::{ContextStart, ContextState, ContextSummary, Request, Response};
use sandbox::{ContextName, Error, ExecSpec, Language, Result, path_from};
use serde::{Deserialize, Serialize};
use utoipa::openapi::{ObjectBuilder, Type};

use crate::{Engine, Principal, SandboxRef, files::Answer, names};

/// Most contexts or languages that a guest may report.
const MAX_TOLD: usize = 1024;

/// The request for a new context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextSpec {
    /// Invented when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ContextName>,
    pub language: Language,
    /// Added to the sandbox's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A context as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextView {
    pub name: String,
    pub language: String,
    #[schema(schema_with = context_state)]
    pub state: ContextState,
    /// Absent while no interpreter runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Cells that ended in it.
    pub cells: u64,
    /// Cells that wait for their turn.
    pub queued: u32,
    pub cwd: String,
    /// The context that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub memory_bytes: u64,
}

fn context_state() -> utoipa::openapi::Object {
    let states = ["starting", "idle", "busy", "lost"];
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(states)).build()
}

/// A new context, with sentences for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub context: ContextView,
    pub warnings: Vec<String>,
}

/// A language that the sandbox can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LanguageView {
    pub name: String,
    /// The program that runs it.
    pub program: String,
    /// Whether cells share variables.
    pub stateful: bool,
}

/// A context runs like an exec, so the same requests are refused.
fn check(spec: &ContextSpec) -> Result<()> {
    let ContextSpec { env, cwd, user, .. } = spec.clone();
    let exec = ExecSpec { env, cwd, user, ..ExecSpec::argv(["interpreter"]) };
    exec.check().map_err(Error::from)
}

impl Engine {
    #[crate::boxed]
    pub async fn create_context(
        &self,
        who: &Principal,
        which: &SandboxRef,
        spec: ContextSpec,
    ) -> Result<Made> {
        if !spec.language.is_stateful() {
            return Err(Error::invalid(format!("{} keeps no state between cells", spec.language))
                .with_hint("Run its code without a context."));
        }
        let plan = self.core().find_to_change(who, which).await?.status.borrow().record.plan.clone();
        check(&spec)?;
        let name = match spec.name {
            Some(name) => name.to_string(),
            None => names::random_name()?.to_string(),
        };
        let mut env = plan.env;
        env.extend(spec.env);
        let request = Request::ContextCreate(ContextStart {
            name,
            language: spec.language.interpreter().to_string(),
            env,
            cwd: spec.cwd.map_or(plan.cwd.clone(), |cwd| path_from(&plan.cwd, &cwd)),
            user: spec.user.unwrap_or(plan.user),
            rlimits: Vec::new(),
        });
        made(self.ask_guest(who, which, &request).await?)
    }

    /// By name.
    #[crate::boxed]
    pub async fn contexts(&self, who: &Principal, which: &SandboxRef) -> Result<Vec<ContextView>> {
        match self.ask_guest(who, which, &Request::ContextList).await? {
            Answer(Response::Contexts { contexts }, _) => {
                Ok(contexts.into_iter().take(MAX_TOLD).map(ContextView::from).collect())
            }
            answer => Err(answer.wrong()),
        }
    }

    /// Forgets the context's variables.
    #[crate::boxed]
    pub async fn reset_context(
        &self,
        who: &Principal,
        which: &SandboxRef,
        name: &ContextName,
    ) -> Result<Made> {
        let request = Request::ContextReset { name: name.to_string() };
        made(self.ask_guest(who, which, &request).await?)
    }

    /// Ends the context and every cell in it.
    #[crate::boxed]
    pub async fn remove_context(
        &self,
        who: &Principal,
        which: &SandboxRef,
        name: &ContextName,
    ) -> Result<()> {
        self.order(who, which, Request::ContextRemove { name: name.to_string() }).await
    }

    /// Branches a live context: both start with the same variables and then diverge. `force`: despite hazards (threads,
    /// shared descriptors), which then become warnings.
    #[crate::boxed]
    pub async fn fork_context(
        &self,
        who: &Principal,
        which: &SandboxRef,
        name: &ContextName,
        into: Option<&ContextName>,
        force: bool,
    ) -> Result<Made> {
        let into = match into {
            Some(into) => into.to_string(),
            None => names::random_name()?.to_string(),
        };
        let request = Request::ContextFork { name: name.to_string(), into, force };
        made(self.ask_guest(who, which, &request).await?)
    }

    /// The languages whose programs exist inside.
    #[crate::boxed]
    pub async fn languages(&self, who: &Principal, which: &SandboxRef) -> Result<Vec<LanguageView>> {
        let plan = self.core().find_to_look(who, which).await?.status.borrow().record.plan.clone();
        let path = plan.env.get("PATH").cloned().unwrap_or_default();
        match self.ask_guest(who, which, &Request::Languages { path }).await? {
            Answer(Response::Languages { languages }, _) => Ok(languages
                .into_iter()
                .take(MAX_TOLD)
                .map(|found| LanguageView {
                    name: found.name,
                    program: found.program,
                    stateful: found.stateful,
                })
                .collect()),
            answer => Err(answer.wrong()),
        }
    }
}

fn made(answer: Answer) -> Result<Made> {
    match answer {
        Answer(Response::Context { context, warnings }, _) => {
            Ok(Made { context: (*context).into(), warnings })
        }
        answer => Err(answer.wrong()),
    }
}

impl From<ContextSummary> for ContextView {
    fn from(summary: ContextSummary) -> Self {
        let ContextSummary { name, language, state, pid, cells, queued, cwd, parent, memory_bytes } = summary;
        Self { name, language, state, pid, cells, queued, cwd, parent, memory_bytes }
    }
}
