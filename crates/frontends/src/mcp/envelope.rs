//! One shape for every answer and every failure: `{ok, data, warnings?, truncated?}` or `{ok: false, error}`.

use std::borrow::Cow;

use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// What a tool answers.
#[derive(Debug)]
pub(crate) struct Answer<D> {
    pub(crate) data: D,
    /// What the caller should know beside the data, as sentences.
    pub(crate) warnings: Vec<String>,
    pub(crate) truncated: Vec<Truncated>,
    /// What stands beside the text.
    pub(crate) parts: Vec<Part>,
}

/// Something in an answer that is no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Image { mime_type: String, base64: String },
    Link(Link),
}

/// A resource that holds what an answer does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) mime_type: Option<String>,
    pub(crate) size: Option<u64>,
}

impl<D> Answer<D> {
    pub(crate) fn new(data: D) -> Self {
        Self { data, warnings: Vec::new(), truncated: Vec::new(), parts: Vec::new() }
    }

    #[must_use]
    pub(crate) fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    #[must_use]
    pub(crate) fn warn_all(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    #[must_use]
    pub(crate) fn truncate(mut self, cut: impl IntoIterator<Item = Truncated>) -> Self {
        self.truncated.extend(cut);
        self
    }

    #[must_use]
    pub(crate) fn with_parts(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts.extend(parts);
        self
    }
}

/// A field that does not hold all there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Truncated {
    pub(crate) field: String,
    pub(crate) returned_bytes: u64,
    pub(crate) total_bytes: u64,
    /// Which call reads the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

pub(crate) type ToolResult<D> = Result<Answer<D>, Failure>;

/// Why a tool did not do what was asked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failure {
    /// Stable: the name of one of the product's twelve kinds, or one of the codes below.
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    /// A sentence that names the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Value>,
    pub(crate) retryable: bool,
}

/// A host path outside what was allowed.
pub(crate) const HOST_PATH_DENIED: &str = "host_path_denied";
/// A destructive call without `confirm`.
pub(crate) const DANGEROUS_OPERATION_DISABLED: &str = "dangerous_operation_disabled";
/// The command ended with another status than 0, and the caller asked for that to be a failure.
pub(crate) const EXEC_FAILED: &str = "exec_failed";

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code: Cow::Borrowed(code),
            message: message.into(),
            hint: None,
            details: None,
            retryable: false,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest.as_str(), message)
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The parameter that a failure at the host is about, where it is not called hostPath.
    #[must_use]
    pub(crate) fn naming(mut self, parameter: &str) -> Self {
        self.hint = self.hint.map(|hint| hint.replace("hostPath", parameter));
        self
    }

    /// For a failure of this kind, the next call; what the engine hints at is for people at a terminal.
    #[must_use]
    pub(crate) fn or_hint(mut self, kind: ErrorKind, hint: &str) -> Self {
        if self.code == kind.as_str() {
            self.hint = Some(hint.to_owned());
        }
        self
    }
}

impl From<Failure> for Error {
    /// For front ends that know the product's kinds only.
    fn from(failure: Failure) -> Self {
        let kind = ErrorKind::ALL.into_iter().find(|kind| failure.code == kind.as_str());
        let error = Self::new(kind.unwrap_or(ErrorKind::Denied), failure.message);
        match failure.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable) {
            tracing::error!(kind = %error.kind(), error = &error as &dyn std::error::Error, "a tool failed");
        }
        let kind = error.kind();
        Self {
            code: Cow::Borrowed(kind.as_str()),
            message: in_tool_words(&error),
            hint: tool_hint(&error),
            details: None,
            retryable: kind.is_retryable(),
        }
    }
}

/// The engine's word for reading files, looking around and measuring is `files`, which says nothing to who asked for one
/// of the others.
fn in_tool_words(error: &Error) -> String {
    let message = error.message();
    match message.strip_suffix(": files is not possible now") {
        Some(state) => format!("{state}, and has to run for this"),
        None => message.to_owned(),
    }
}

pub(crate) const START_FIRST: &str = "Call sandbox_start first.";
const NAME_HINT: &str =
    "A name has at most 63 letters, digits, '-', '_' and '.', and begins with a letter or digit.";
pub(crate) const INTO_ITSELF: &str = "Choose a path for to that does not lie beneath from.";
/// What a name is of, and which tool lists them.
const NAMED: [(&str, &str); 3] =
    [("sandbox name", "sandbox_list"), ("volume name", "volume_list"), ("snapshot name", "snapshot_list")];
/// How hints of the engine begin that name no tool or no field, and what is told instead.
const IN_TOOL_WORDS: [(&str, &str); 9] = [
    ("List snapshots to see", "Call snapshot_list to see which there are."),
    ("List volumes to see", "Call volume_list to see which there are, or volume_create to make one."),
    ("Create the volume ", "Call volume_create first, or volume_list to see which there are."),
    ("List images to see", "Call image_list to see which are here, or image_pull to get one."),
    ("Give a size such as", "Give sizeMib, such as 1024, or leave kind out for a directory."),
    ("Give a quota, or the kind", "Give quotaMib instead of sizeMib, or kind: disk."),
    ("Give a size; it cannot", "Give sizeMib instead of quotaMib: it cannot be passed."),
    ("A smaller file system has", "Give more as sizeMib of a disk, or as quotaMib of a directory."),
    ("Give an archive that snapshot save", "Give an archive that snapshot_save wrote."),
];

/// The next step, told by tool names: the engine's own hints are for people at a terminal.
fn tool_hint(error: &Error) -> Option<String> {
    let (message, own) = (error.message(), error.hint().filter(|hint| !hint.contains("`warren")));
    let told = match error.kind() {
        ErrorKind::NotFound if message.starts_with("no sandbox") => {
            Some("Call sandbox_list to see which there are, or sandbox_create to make one.")
        }
        ErrorKind::WrongState => state_hint(message),
        ErrorKind::LimitReached if error.hint().is_some_and(|hint| hint.starts_with("Remove ")) => {
            Some("Call sandbox_list to see which there are, and sandbox_remove what is not needed.")
        }
        ErrorKind::InvalidRequest if own.is_none() && is_into_itself(message) => Some(INTO_ITSELF),
        ErrorKind::InvalidRequest if own.is_none() => {
            let (_, lists) = NAMED.iter().find(|(what, _)| message.contains(what))?;
            return Some(format!("{NAME_HINT} Call {lists} to see which there are."));
        }
        // Says only that something is wrong, which the message says better.
        ErrorKind::InvalidRequest if own == Some("Correct the command and try again.") => {
            return Some(format!("Correct this and call again: {message}."));
        }
        _ => None,
    };
    let own = own.map(|own| {
        let known = IN_TOOL_WORDS.iter().find(|(begin, _)| own.starts_with(begin));
        known.map_or(own, |(_, instead)| instead)
    });
    told.or(own).map(str::to_owned)
}

/// In the words of the guest, for copies and for moves.
fn is_into_itself(message: &str) -> bool {
    message.contains("into itself") || message.contains(", which is to be copied there")
}

/// For refusals of the lifecycle, which name the state before a colon: what leads to another state.
fn state_hint(message: &str) -> Option<&'static str> {
    let (subject, _) = message.split_once(':')?;
    let (sandbox, state) = subject.rsplit_once(" is ")?;
    if !sandbox.starts_with("sandbox ") {
        return None;
    }
    match state {
        "creating" => Some("Call sandbox_status until it is running, then try again."),
        "paused" => Some("Call sandbox_resume first."),
        "draining" => Some("Wait with sandbox_wait, then sandbox_start, or use another sandbox."),
        "stopping" => Some("Wait with sandbox_wait, then sandbox_start."),
        "stopped" => Some(START_FIRST),
        "failed" => Some("Call sandbox_inspect for the reason, then sandbox_remove it."),
        _ => None,
    }
}

/// What goes out: the envelope as JSON, and whether it tells of a failure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) body: Value,
    pub(crate) is_error: bool,
    pub(crate) parts: Vec<Part>,
}

impl Envelope {
    pub(crate) fn of<D: Serialize>(result: ToolResult<D>) -> Self {
        match result {
            Ok(answer) => match serde_json::to_value(&answer.data) {
                Ok(data) => {
                    Self { parts: answer.parts, ..Self::ok(data, answer.warnings, &answer.truncated) }
                }
                Err(error) => Self::failed(&Failure::from(
                    Error::new(ErrorKind::Internal, "the answer could not be written").with_source(error),
                )),
            },
            Err(failure) => Self::failed(&failure),
        }
    }

    fn ok(data: Value, warnings: Vec<String>, truncated: &[Truncated]) -> Self {
        let mut body = Map::from_iter([("ok".to_owned(), Value::Bool(true)), ("data".to_owned(), data)]);
        if !warnings.is_empty() {
            body.insert("warnings".to_owned(), Value::from(warnings));
        }
        if !truncated.is_empty() {
            body.insert("truncated".to_owned(), serde_json::json!(truncated));
        }
        Self { body: Value::Object(body), is_error: false, parts: Vec::new() }
    }

    pub(crate) fn failed(failure: &Failure) -> Self {
        Self { body: serde_json::json!({ "ok": false, "error": failure }), is_error: true, parts: Vec::new() }
    }

    /// The code of the failure it tells of, for the audit.
    pub(crate) fn error_code(&self) -> Option<&str> {
        self.body.pointer("/error/code").and_then(Value::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(kind: ErrorKind, message: &str, own: Option<&str>) -> Option<String> {
        let error = Error::new(kind, message);
        Failure::from(match own {
            Some(own) => error.with_hint(own),
            None => error,
        })
        .hint
    }

    #[test]
    fn hints_name_the_next_tool() {
        let refused = |state: &str| {
            let message = format!("sandbox p is {state}: exec is not possible now");
            hint(ErrorKind::WrongState, &message, Some("Look at it.")).unwrap()
        };
        for (state, tool) in [
            ("creating", "sandbox_status"),
            ("paused", "sandbox_resume"),
            ("draining", "sandbox_wait"),
            ("stopping", "sandbox_wait"),
            ("stopped", "sandbox_start"),
            ("failed", "sandbox_inspect"),
        ] {
            assert!(refused(state).contains(tool), "{state}: {}", refused(state));
        }
        assert_eq!(hint(ErrorKind::WrongState, "/a is stopped: b", None), None);
        let own = "Remove a sandbox that is not needed, or use a key with a higher --max-sandboxes.";
        let told = hint(ErrorKind::LimitReached, "k may have 1 sandboxes and has 1", Some(own)).unwrap();
        assert!(told.contains("sandbox_remove") && !told.contains("--max"), "{told}");
        let own = Some("Correct the command and try again.");
        let told = hint(ErrorKind::InvalidRequest, "the command is empty", own).unwrap();
        assert!(told.contains("the command is empty"), "{told}");
        assert_eq!(hint(ErrorKind::LimitReached, "full", Some("Try later.")), Some("Try later.".to_owned()));
        let own = Some("List snapshots to see which there are.");
        let told = hint(ErrorKind::NotFound, "no snapshot x", own).unwrap();
        assert!(told.contains("snapshot_list"), "{told}");
        for (message, tool) in [
            ("a volume name must not be empty", "volume_list"),
            ("\"?\" is not a snapshot name: …", "snapshot_list"),
        ] {
            let told = hint(ErrorKind::InvalidRequest, message, None).unwrap();
            assert!(told.contains(tool), "{told}");
        }
        assert_eq!(hint(ErrorKind::InvalidRequest, "it is odd", None), None);
        let inside = "/a/b lies inside /a, which is to be copied there";
        assert_eq!(hint(ErrorKind::InvalidRequest, inside, None).as_deref(), Some(INTO_ITSELF));
    }
}
