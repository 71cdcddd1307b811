//! The steps that make the sandboxes as the file says. Decided before anything is changed.

use std::collections::{BTreeMap, BTreeSet};

use frontends::rest::v1;
use sandbox::{Error, ErrorKind, Result, SandboxState};
use serde::Serialize;

use super::{
    CONFIG_LABEL, DIRECTORY_LABEL, MEMBER_LABEL, PROJECT_LABEL,
    project::{Member, Project},
};

/// One step, for one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// As the file calls it.
    pub(crate) name: String,
    /// As everybody else does.
    pub(crate) sandbox: String,
    pub(crate) action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Create,
    /// Removed with its files, and created again.
    Replace,
    Start,
    Resume,
    /// Somebody else is starting it.
    Await,
    /// It is as it should be.
    Keep,
    Stop,
    Remove,
}

impl Action {
    /// Files are lost by it.
    pub(crate) fn is_destructive(self) -> bool {
        matches!(self, Self::Replace | Self::Remove)
    }

    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Create => "created",
            Self::Replace => "replaced",
            Self::Start | Self::Await => "started",
            Self::Resume => "resumed",
            Self::Keep => "unchanged",
            Self::Stop => "stopped",
            Self::Remove => "removed",
        }
    }

    pub(crate) fn planned(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Start => "start",
            Self::Await => "wait for",
            Self::Resume => "resume",
            Self::Keep => "keep",
            Self::Stop => "stop",
            Self::Remove => "remove",
        }
    }
}

/// The treatment of a sandbox that is not as the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// `up`: it is started as it is, with a warning.
    Tell,
    /// `apply`: it is made again.
    Replace,
}

/// The sandboxes of a project that exist, by the names that its file uses.
#[derive(Debug)]
pub(crate) struct ProjectSandboxes {
    members: BTreeMap<String, v1::Sandbox>,
}

impl ProjectSandboxes {
    /// Sorts out which of `all` belong to the project. Refuses a stranger that has the name of one of its sandboxes.
    pub(crate) fn new(project: &Project, all: Vec<v1::Sandbox>) -> Result<Self> {
        let mut members = BTreeMap::new();
        for view in all.into_iter().filter(|view| view.namespace == project.namespace) {
            let own = project.members.iter().find(|member| member.spec.name.as_ref() == Some(&view.name));
            if view.labels.get(PROJECT_LABEL).map(String::as_str) != Some(project.name.as_str()) {
                match own {
                    Some(member) => return Err(foreign(project, member, &view)),
                    None => continue,
                }
            }
            let elsewhere = view.labels.get(DIRECTORY_LABEL).zip(project.directory.as_ref());
            if elsewhere.is_some_and(|(theirs, ours)| theirs != ours) {
                return Err(of_another_directory(project, &view));
            }
            if let Some(name) = view.labels.get(MEMBER_LABEL) {
                members.insert(name.clone(), view);
            }
        }
        Ok(Self { members })
    }

    /// Returns the steps of `up` and `apply` for the chosen members, in their order.
    pub(crate) fn steps(
        &self,
        project: &Project,
        chosen: &BTreeSet<String>,
        difference: Difference,
    ) -> Result<Vec<Step>> {
        let members = project.members.iter().filter(|member| chosen.contains(&member.name));
        members.map(|member| self.step(member, difference)).collect()
    }

    fn step(&self, member: &Member, difference: Difference) -> Result<Step> {
        let sandbox = member.spec.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let step = |action, reason: Option<&str>| {
            let (name, reason) = (member.name.clone(), reason.map(str::to_owned));
            Ok(Step { name, sandbox: sandbox.clone(), action, reason })
        };
        let Some(view) = self.members.get(&member.name) else { return step(Action::Create, None) };
        let is_changed = view.labels.get(CONFIG_LABEL) != member.spec.labels.get(CONFIG_LABEL);
        if is_changed && difference == Difference::Replace {
            return step(Action::Replace, Some("the file changed"));
        }
        let reason =
            is_changed.then_some("the file changed since it was created; `warren apply` replaces it");
        match view.state {
            SandboxState::Running => step(Action::Keep, reason),
            SandboxState::Paused => step(Action::Resume, reason),
            SandboxState::Stopped | SandboxState::Stopping => step(Action::Start, reason),
            SandboxState::Creating => step(Action::Await, reason),
            SandboxState::Failed if difference == Difference::Replace => {
                step(Action::Replace, Some("it failed"))
            }
            SandboxState::Failed => Err(failed(view)),
        }
    }

    /// Returns the steps for members that are no longer in the file, last in the alphabet first.
    pub(crate) fn surplus(&self, project: &Project, action: Action) -> Vec<Step> {
        let is_known = |name: &String| project.members.iter().any(|member| member.name == *name);
        let surplus = self.members.iter().rev().filter(|(name, _)| !is_known(name));
        surplus
            .map(|(name, view)| Step {
                name: name.clone(),
                sandbox: view.name.to_string(),
                action: if action == Action::Stop && is_down(view) { Action::Keep } else { action },
                reason: Some("it is not in the file".to_owned()),
            })
            .collect()
    }

    /// Returns the steps of `down`: those that depend on others first.
    pub(crate) fn steps_down(
        &self,
        project: &Project,
        chosen: &BTreeSet<String>,
        removes: bool,
    ) -> Vec<Step> {
        let members = project.members.iter().rev().filter(|member| chosen.contains(&member.name));
        let step = |member: &Member| {
            let view = self.members.get(&member.name)?;
            let action = match (removes, is_down(view)) {
                (true, _) => Action::Remove,
                (false, true) => Action::Keep,
                (false, false) => Action::Stop,
            };
            Some(Step { name: member.name.clone(), sandbox: view.name.to_string(), action, reason: None })
        };
        members.filter_map(step).collect()
    }
}

fn is_down(view: &v1::Sandbox) -> bool {
    matches!(view.state, SandboxState::Stopped | SandboxState::Failed)
}

fn foreign(project: &Project, member: &Member, view: &v1::Sandbox) -> Error {
    let message = format!(
        "sandbox {} exists and is not of project {}, whose {:?} would have this name",
        view.name, project.name, member.name
    );
    Error::new(ErrorKind::AlreadyExists, message).with_hint(format!(
        "Choose another project name with --project, or remove it with `warren rm {}`.",
        view.name
    ))
}

fn of_another_directory(project: &Project, view: &v1::Sandbox) -> Error {
    let message = format!("sandbox {} is of a project {} in another directory", view.name, project.name);
    Error::new(ErrorKind::AlreadyExists, message).with_hint(format!(
        "Choose another name with --project, or use that project's sandboxes with --project {}.",
        project.name
    ))
}

fn failed(view: &v1::Sandbox) -> Error {
    let why = view.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    Error::new(ErrorKind::WrongState, format!("sandbox {} has failed{why}", view.name))
        .with_hint("`warren apply` makes it again, without its files.")
}
