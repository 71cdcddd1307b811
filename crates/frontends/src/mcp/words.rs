//! The next step after an error, as a tool to call: the table of this front end.

use std::{cell::RefCell, collections::BTreeMap};

use sandbox::{Error, ErrorKind, Limit, Next, Setting, Subject, Thing};
use serde_json::{Value, json};

use super::{Call, Toolset, Toolsets, next_call::written, surface::Surface};

const NAME_RULE: &str =
    "A name has at most 63 letters, digits, '-', '_' and '.', and starts with a letter or digit.";

/// The tools that hints to a caller may name.
#[derive(Debug, Default)]
pub(crate) struct KnownTools<'a> {
    /// The caller's surface, and the toolsets that are listed. Absent: all of Warren's own tools, all listed.
    listed: Option<(&'a Surface, Toolsets)>,
}

impl<'a> KnownTools<'a> {
    /// Those of the caller's surface, of which some are in the list that the caller was given.
    pub(crate) fn of(call: &Call, surface: &'a Surface) -> Self {
        Self { listed: Some((surface, call.session.toolsets(&call.settings.toolsets))) }
    }

    /// Those of a surface, all of them listed.
    pub(crate) fn all(surface: &'a Surface) -> Self {
        Self { listed: Some((surface, Toolsets::all())) }
    }

    pub(crate) fn has(&self, tool: &str) -> bool {
        self.listed.as_ref().is_none_or(|(surface, _)| surface.find(tool).is_some())
    }

    /// Returns the toolset that lists a tool, if the tool is hidden now.
    fn hidden_in(&self, tool: &str) -> Option<Toolset> {
        let (surface, shown) = self.listed.as_ref()?;
        let tool = surface.find(tool).filter(|tool| !tool.is_shown(shown))?;
        surface.manner.has_toolsets.then_some(tool.toolset)
    }

    /// Returns the sentence that says how to list a tool, if the tool is hidden now.
    pub(crate) fn way_to(&self, tool: &'static str) -> Option<String> {
        let hidden = self.hidden_in(tool)?;
        Some(enabling(&BTreeMap::from([(hidden, vec![tool])])))
    }
}

fn enabling(hidden: &BTreeMap<Toolset, Vec<&'static str>>) -> String {
    let sets: Vec<_> = hidden.keys().map(|set| set.as_str()).collect();
    let tools: Vec<_> = hidden.values().flatten().copied().collect();
    let call = written("toolset_enable", &json!({ "toolsets": sets }));
    format!("To have {} in your list, call {call}.", tools.join(" and "))
}

/// Builds a hint and remembers the tools that it names. There is no hint if one of them does not exist for the caller,
/// and it says how to list those that are hidden.
struct Sentence<'a> {
    known: &'a KnownTools<'a>,
    hidden: RefCell<BTreeMap<Toolset, Vec<&'static str>>>,
    names_missing: std::cell::Cell<bool>,
}

impl Sentence<'_> {
    /// The name of a tool.
    fn tool(&self, tool: &'static str) -> &'static str {
        if !self.known.has(tool) {
            self.names_missing.set(true);
        }
        if let Some(set) = self.known.hidden_in(tool) {
            let mut hidden = self.hidden.borrow_mut();
            let tools = hidden.entry(set).or_default();
            if !tools.contains(&tool) {
                tools.push(tool);
            }
        }
        tool
    }

    /// A call with all its arguments.
    fn call(&self, tool: &'static str, arguments: &Value) -> String {
        written(self.tool(tool), arguments)
    }

    /// A call that needs the name of a sandbox only.
    fn on(&self, tool: &'static str, sandbox: &str) -> String {
        self.call(tool, &json!({ "name": sandbox }))
    }

    fn finished(self, text: String) -> Option<String> {
        if self.names_missing.get() {
            return None;
        }
        let hidden = self.hidden.into_inner();
        Some(if hidden.is_empty() { text } else { format!("{text} {}", enabling(&hidden)) })
    }
}

/// Returns a sentence that names the next call.
pub(crate) fn hint(error: &Error) -> Option<String> {
    hint_for(error, &KnownTools::default())
}

/// The same for a caller with these tools.
pub(crate) fn hint_for(error: &Error, known: &KnownTools<'_>) -> Option<String> {
    let Some(next) = error.next() else {
        return (error.kind() == ErrorKind::InvalidRequest)
            .then(|| format!("Correct this and call again: {error}."));
    };
    let sentence = Sentence { known, hidden: RefCell::default(), names_missing: std::cell::Cell::default() };
    let text = next_step(next, &sentence);
    sentence.finished(text)
}

fn next_step(next: &Next, to: &Sentence<'_>) -> String {
    match next {
        Next::Advice(advice) => advice.clone(),
        Next::Retry => "Call it again in a moment.".to_owned(),
        Next::Nothing => "No action is needed.".to_owned(),
        Next::Start(name) => format!("Call {} first.", to.on("sandbox_start", name)),
        Next::Resume(name) => format!("Call {} first.", to.on("sandbox_resume", name)),
        Next::Stop(name) => format!("Call {} first.", to.on("sandbox_stop", name)),
        Next::GiveUp(_) => {
            "Try again when its back end responds, or set force: true to abandon it.".to_owned()
        }
        Next::StopOrForce(name) => format!("Call {} first, or set force: true.", to.on("sandbox_stop", name)),
        Next::AwaitRunning(name) => {
            format!("Call {} until it is running, then try again.", to.on("sandbox_status", name))
        }
        Next::AwaitStopped(name) => {
            format!("Call {}, then {}.", to.on("sandbox_wait", name), to.on("sandbox_start", name))
        }
        Next::Restart(name) => format!(
            "Call {}, then {}, or use another sandbox.",
            to.on("sandbox_wait", name),
            to.on("sandbox_start", name)
        ),
        Next::Reboot(name) => format!(
            "Call {}, then {}; its files are kept.",
            to.on("sandbox_stop", name),
            to.on("sandbox_start", name)
        ),
        Next::Inspect(name) => {
            format!("Call {} to see its state, then try again.", to.on("sandbox_inspect", name))
        }
        Next::Replace(name) => format!(
            "Call {} to see the reason, then {}.",
            to.on("sandbox_inspect", name),
            to.on("sandbox_remove", name)
        ),
        Next::List(what) | Next::Create(what) => list(*what, to),
        Next::Name(what) => format!("{NAME_RULE} {}", list(*what, to)),
        Next::FreeName(subject) => {
            let (tool, what) = match subject {
                Subject { what: Thing::Volume, .. } => ("volume_inspect", "see the existing volume"),
                Subject { what: Thing::Snapshot, .. } => ("snapshot_list", "see the existing snapshot"),
                _ => ("sandbox_list", "see what uses it"),
            };
            format!("Choose another name, or call {} to {what}.", to.tool(tool))
        }
        Next::RemoveUsers(what) => remove_users(*what, to),
        Next::Allow(host) => format!("Add {host:?} to network.allow."),
        Next::AskNetwork(rules) => ask_network(rules, to),
        Next::SetSecret { name, host } => {
            let host = host.as_deref().unwrap_or("HOST");
            format!(
                "Call {} to see all secrets, or ask the operator to run: warren secret set {name} --host {host}",
                to.tool("sandbox_secrets")
            )
        }
        Next::Pull(image) => format!(
            "Call {} for {image}, or {} with an archive that includes the image.",
            to.tool("image_pull"),
            to.tool("snapshot_load")
        ),
        Next::HostImage(host) => {
            let fallback = match host.can_stand_in {
                true => ", or set imageFallback: true to use it whenever the image cannot be pulled",
                false => "",
            };
            format!("Check the image's name, or set image: \"host\", which has {}{fallback}.", host.listed())
        }
        Next::Remove(what) => match what {
            Thing::Sandbox => remove_some("sandbox_list", "sandbox_remove", to),
            Thing::Volume => remove_some("volume_list", "volume_remove", to),
            Thing::Snapshot => remove_some("snapshot_list", "snapshot_remove", to),
            _ => "Remove some that you no longer need.".to_owned(),
        },
        Next::Raise(limit) => within(*limit, to),
        Next::Archive(_) => format!("Use an archive that {} wrote.", to.tool("snapshot_save")),
        Next::VolumeSize => {
            "A disk (kind: disk) takes sizeMib, such as 1024; a directory takes quotaMib instead.".to_owned()
        }
        Next::VolumeQuota => {
            "A directory takes quotaMib, such as 1024; a disk (kind: disk) takes sizeMib instead.".to_owned()
        }
        Next::MakeKey | Next::SignIn => "Ask the daemon's operator for a key.".to_owned(),
        Next::UseBackend(kind) => format!("Set backend to \"{kind}\", or omit it."),
        Next::Configure(setting) => match setting {
            Setting::PublishAddresses => {
                "Omit the address for 127.0.0.1, or ask the daemon's operator to allow this one."
            }
            Setting::Registries => "Use a public registry, or ask the daemon's operator to allow this one.",
            Setting::Packages => {
                "Ask the daemon's operator to enable packages, or use an image that has what you need."
            }
        }
        .to_owned(),
        Next::LogIn => format!(
            "Call {} with username and password, or check the name: registries answer the same for images that do not \
             exist.",
            to.tool("image_pull")
        ),
        Next::Diagnose | Next::Recover | Next::Listen => {
            "Only the daemon's operator can fix this.".to_owned()
        }
    }
}

/// The call that lists them, and the one that creates another.
fn list(what: Thing, to: &Sentence<'_>) -> String {
    let (tool, rest) = match what {
        Thing::Sandbox => {
            let create = to.tool("sandbox_create");
            return format!(
                "Call {} to see all sandboxes, or {create} to create one.",
                to.tool("sandbox_list")
            );
        }
        Thing::Volume => {
            let create = to.tool("volume_create");
            return format!("Call {} to see all volumes, or {create} to create one.", to.tool("volume_list"));
        }
        Thing::Image => {
            let pull = to.tool("image_pull");
            return format!("Call {} to see local images, or {pull} to get one.", to.tool("image_list"));
        }
        Thing::Snapshot => ("snapshot_list", "to see all snapshots"),
        Thing::Exec => ("sandbox_exec_list", "to see the sessions of a sandbox"),
        Thing::Context => ("code_context_list", "to see the contexts of the sandbox"),
        Thing::PackageJob => ("sandbox_package_status", "with the sandbox's name to see its jobs"),
        Thing::Port => ("sandbox_ports", "to see what listens in the sandbox"),
        Thing::Secret => ("sandbox_secrets", "to see all secrets"),
        Thing::File => ("sandbox_fs_list", "on the parent directory to see what exists"),
        Thing::Key
        | Thing::SshKey
        | Thing::HostPath
        | Thing::Patch
        | Thing::Archive
        | Thing::Route
        | Thing::Backend => return "Check the name.".to_owned(),
    };
    format!("Call {} {rest}.", to.tool(tool))
}

fn remove_some(list: &'static str, remove: &'static str, to: &Sentence<'_>) -> String {
    format!("Call {}, then {} those you no longer need.", to.tool(list), to.tool(remove))
}

fn remove_users(what: Thing, to: &Sentence<'_>) -> String {
    let remove = to.tool("sandbox_remove");
    match what {
        Thing::Volume => format!("Call {remove} for the sandboxes that mount it first."),
        Thing::Secret => format!("Call {remove} for the sandboxes that have it first."),
        Thing::Snapshot => {
            let own = to.tool("snapshot_remove");
            format!("Call {remove} and {own} for its users, or {own} with force and confirm.")
        }
        _ => format!("Call {remove} for its users, or {} with force and confirm.", to.tool("image_remove")),
    }
}

fn within(limit: Limit, to: &Sentence<'_>) -> String {
    match limit {
        Limit::Sandboxes | Limit::KeySandboxes | Limit::KeyMemory => {
            remove_some("sandbox_list", "sandbox_remove", to)
        }
        Limit::Volumes => remove_some("volume_list", "volume_remove", to),
        Limit::Snapshots => remove_some("snapshot_list", "snapshot_remove", to),
        Limit::VolumeQuota => {
            format!("Remove files with {}, or use a volume with a higher quota.", to.tool("volume_fs_remove"))
        }
        Limit::Execs | Limit::PackageJobs => format!(
            "Call {} to see what is running, and wait for some to finish.",
            to.tool("sandbox_exec_list")
        ),
        Limit::Keys | Limit::RequestRate | Limit::Streams => "Wait a moment, then call it again.".to_owned(),
    }
}

/// The hint for network access that only a person can grant.
fn ask_network(rules: &[String], to: &Sentence<'_>) -> String {
    const REQUEST: &str = "sandbox_network_request";
    if !to.known.has(REQUEST) {
        return "Omit it, or ask the person who runs this server to allow it.".to_owned();
    }
    let rules = if rules.is_empty() { vec!["HOST:443".to_owned()] } else { rules.to_vec() };
    let arguments = json!({ "name": "NAME", "rules": rules, "reason": "WHY" });
    format!(
        "Omit it; once the sandbox is there, ask a person for what you need with {}.",
        to.call(REQUEST, &arguments)
    )
}

#[cfg(test)]
mod tests {
    use sandbox::SandboxState;

    use super::*;
    use crate::mcp::testing::{native, theirs};

    #[test]
    fn hints_name_the_next_tool() {
        let name = || "web".to_owned();
        for (next, tool) in [
            (Next::Start(name()), "sandbox_start"),
            (Next::Resume(name()), "sandbox_resume"),
            (Next::AwaitRunning(name()), "sandbox_status"),
            (Next::AwaitStopped(name()), "sandbox_wait"),
            (Next::Replace(name()), "sandbox_inspect"),
            (Next::List(Thing::Snapshot), "snapshot_list"),
            (Next::Create(Thing::Volume), "volume_create"),
            (Next::Name(Thing::Volume), "volume_list"),
            (Next::Raise(Limit::KeySandboxes), "sandbox_remove"),
        ] {
            let error =
                Error::new(ErrorKind::WrongState, "no").in_state(SandboxState::Stopped).with_next(next);
            let told = hint(&error).unwrap();
            assert!(told.contains(tool) && !told.contains("warren"), "{told}");
        }
        let start = Error::new(ErrorKind::WrongState, "no").with_next(Next::Start(name()));
        assert_eq!(hint(&start).unwrap(), r#"Call sandbox_start {"name":"web"} first."#);
        assert!(hint(&Error::invalid("it is odd")).unwrap().contains("it is odd"));
        assert_eq!(hint(&Error::new(ErrorKind::Internal, "it broke")), None);
        assert_eq!(hint(&Error::invalid("full").with_hint("Try later.")), Some("Try later.".to_owned()));
    }

    #[test]
    fn a_tool_that_is_not_listed_is_told_with_the_call_that_lists_it() {
        let known = KnownTools { listed: Some((native(), Toolsets::default())) };
        let told = |next| hint_for(&Error::invalid("no").with_next(next), &known).unwrap();
        assert_eq!(
            told(Next::AwaitStopped("web".to_owned())),
            "Call sandbox_wait {\"name\":\"web\"}, then sandbox_start {\"name\":\"web\"}. To have sandbox_wait in your \
             list, call toolset_enable {\"toolsets\":[\"lifecycle\"]}."
        );
        assert!(!told(Next::Start("web".to_owned())).contains("toolset_enable"));
        let ask = told(Next::AskNetwork(vec!["example.org:80".to_owned()]));
        assert!(ask.contains(r#""rules":["example.org:80"]"#) && ask.contains("toolset_enable"), "{ask}");
    }

    #[test]
    fn clients_of_another_system_are_told_of_no_tool_that_they_do_not_have() {
        let surface = theirs();
        let known = KnownTools::all(&surface);
        let told = |next| hint_for(&Error::invalid("no").with_next(next), &known);
        assert_eq!(told(Next::Resume("web".to_owned())), None);
        assert!(!told(Next::AskNetwork(Vec::new())).unwrap().contains("sandbox_network"));
        assert!(told(Next::Start("web".to_owned())).unwrap().contains("sandbox_start"));
    }
}
