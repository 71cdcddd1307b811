//! Tools of other systems, and the call that does the same here. A model that learned them elsewhere is answered with
//! that call, not with a list to search.

use serde_json::{Value, json};

use super::{
    Failure,
    aliases::{self, plain},
    next_call::written,
    schema::JsonObject,
    surface::Surface,
};

/// How alike names must be, without what all names begin with, to be taken for a slip: 0 is nothing, 1 the same.
const LIKENESS: f64 = 0.7;
/// A text that is longer is not repeated in the answer.
const MAX_REPEATED_CHARS: usize = 400;
/// Stands for a sandbox that the call did not name.
const SOME_SANDBOX: &str = "<sandbox>";

/// Arguments by name that a foreign tool implies.
type Added = &'static [(&'static str, &'static str)];

/// Names in plain form, without `sandbox_` at the beginning; the tool here; and what is added to its arguments.
const FOREIGN: &[(&str, &str, Added)] = &[
    (
        "bash shell sh terminal command commandrun runcommand executecommand execcommand executeshell runshell runbash \
         runshellcommand executeterminalcommand runinterminal localshell commandsrun bashcodeexecution \
         runterminalcommand runterminalcmd processstart executebash containerexec execute executeshellcommand runcmd",
        "sandbox_shell",
        &[],
    ),
    (
        "executepythoncode runpython python executepython pythonexec runpythoncode codeexecution codeinterpreter \
         runcode executecode coderun e2bruncode ipython jupyter notebookrun runcell executecell runipythoncell repl \
         pythonrepl runipython",
        "sandbox_run_code",
        &[],
    ),
    (
        "runjavascript runjs executejavascript runnode executejavascriptcode javascript node",
        "sandbox_run_code",
        &[("language", "javascript")],
    ),
    (
        "read readfile fileread filesread getfile viewfile openfile cat fileget download downloadfile fsreadfile \
         readtextfile",
        "sandbox_fs_read",
        &[],
    ),
    (
        "write writefile filewrite fileswrite createfile savefile putfile upload uploadfile filecreate filesave \
         fswritefile writetofile uploadfiletosandbox",
        "sandbox_fs_write",
        &[],
    ),
    (
        "edit editfile fileedit strreplace filereplacecontents replaceinfile multiedit searchreplace filereplace",
        "sandbox_fs_edit",
        &[],
    ),
    (
        "ls listfiles filelist fileslist listdir listdirectory readdir dirlist listdirectories",
        "sandbox_fs_list",
        &[],
    ),
    ("grep glob find filesearch searchfiles findfiles searchcode grepsearch", "sandbox_fs_search", &[]),
    (
        "mkdir makedir createdirectory filecreatedirectories filesmakedir makedirectory",
        "sandbox_fs_mkdir",
        &[],
    ),
    (
        "rm removefile deletefile filedelete filesremove filedeletedirectories deletedirectory",
        "sandbox_fs_remove",
        &[],
    ),
    ("fsdelete", "sandbox_fs_remove", &[]),
    ("mv movefile renamefile filemove filesrename filerename", "sandbox_fs_rename", &[]),
    ("cp copyfile filecopy", "sandbox_fs_copy", &[]),
    (
        "pipinstall installpackage installpackageinsandbox installpackages packageadd installdependencies",
        "sandbox_package_install",
        &[],
    ),
    ("npminstall", "sandbox_package_install", &[("manager", "npm")]),
    ("aptinstall aptgetinstall", "sandbox_package_install", &[("manager", "apt")]),
    ("checkpackageinstallationstatus packagecheck checkpackage", "sandbox_package_status", &[]),
    ("createsandbox newsandbox initializesandbox initialize createcontainer", "sandbox_create", &[]),
    ("listsandboxes getsandboxes listcontainers", "sandbox_list", &[]),
    (
        "kill delete destroy deletesandbox killsandbox removesandbox terminate destroysandbox",
        "sandbox_remove",
        &[],
    ),
    ("stopsandbox shutdown", "sandbox_stop", &[]),
    (RESTART, "sandbox_stop", &[]),
    ("startsandbox", "sandbox_start", &[]),
    ("logs getlogs readlogs showlogs", "sandbox_logs_read", &[]),
    ("getinfo info getsandbox connect describe", "sandbox_inspect", &[]),
    ("healthcheck health isrunning", "sandbox_status", &[]),
    ("getmetrics", "sandbox_metrics", &[]),
    ("getendpoint gethost exposeport getpreviewurl getpreviewlink", "sandbox_ports", &[]),
    ("settimeout extend keepalive extendtimeout", "sandbox_renew", &[]),
    ("commandinterrupt killcommand commandkill processkill killshell", "sandbox_exec_close", &[]),
    ("bashoutput processoutput commandlogs commandstatus getoutput", "sandbox_exec_poll", &[]),
    ("sendstdin sendinput writestdin commandsendstdin", "sandbox_exec_write_stdin", &[]),
    ("createsnapshot snapshot checkpoint", "snapshot_create", &[]),
];

/// Names of one tool elsewhere for what takes two calls here: stop, then start.
const RESTART: &str = "restart restartsandbox reboot";
/// The parameters of both that say which sandboxes are meant.
const SELECTORS: [&str; 3] = ["name", "names", "labels"];

/// Editors whose `command` says what to do.
const EDITORS: &str =
    "strreplaceeditor strreplacebasededittool texteditor texteditorcodeexecution editor fileeditor";
const EDITOR_COMMANDS: &[(&str, &str)] = &[
    ("view", "sandbox_fs_read"),
    ("create", "sandbox_fs_write"),
    ("str_replace", "sandbox_fs_edit"),
    ("insert", "sandbox_fs_edit"),
];

/// A call of a tool here.
#[derive(Debug, PartialEq)]
pub(super) struct RightCall {
    tool: &'static str,
    arguments: JsonObject,
    /// The tool to call after it, for the same sandbox.
    then: Option<&'static str>,
}

impl RightCall {
    /// The failure of a call to another tool, with this one as the next step.
    pub(super) fn told(self, failure: Failure) -> Failure {
        let Self { tool, arguments, then } = self;
        let needs_sandbox = arguments.get("name").is_some_and(|name| name == SOME_SANDBOX);
        let then = then.map(|then| written(then, &selected(&arguments)));
        let arguments = Value::Object(arguments);
        let mut hint = format!("Call {tool} with {arguments}.");
        if let Some(then) = then {
            hint.push_str(&format!(" Then call {then}."));
        }
        if needs_sandbox {
            hint.push_str(" sandbox_list shows the sandboxes to name, and sandbox_create creates one.");
        }
        failure.with_hint(hint).with_details(json!({ "call": { "tool": tool, "arguments": arguments } }))
    }
}

/// The call here that does what a tool of another system does.
pub(super) fn translate(surface: &Surface, name: &str, arguments: Option<JsonObject>) -> Option<RightCall> {
    let plain_name = bare(name);
    let mut given = arguments.unwrap_or_default();
    let (tool, added) = if has(EDITORS, &plain_name) {
        let command = given.remove("command");
        let command = command.as_ref().and_then(Value::as_str).unwrap_or("view");
        let (_, tool) = EDITOR_COMMANDS.iter().find(|(known, _)| *known == command)?;
        (*tool, &[][..])
    } else {
        let (_, tool, added) = FOREIGN.iter().find(|(names, ..)| has(names, &plain_name))?;
        (*tool, *added)
    };
    let argv = given.get("command").or_else(|| given.get("cmd")).and_then(words);
    let tool = match tool {
        "sandbox_shell" if argv.is_some() => "sandbox_exec",
        "sandbox_fs_remove" if is_of_sandbox(name, &given) => "sandbox_remove",
        "snapshot_create" => {
            name_its_source(&mut given);
            tool
        }
        _ => tool,
    };
    let tool = surface.find(tool)?;
    let mut arguments = JsonObject::new();
    if let Some((program, rest)) = argv.as_deref().and_then(|words| words.split_first()) {
        given.retain(|name, _| name != "command" && name != "cmd");
        arguments.insert("command".to_owned(), json!(program));
        arguments.insert("args".to_owned(), json!(rest));
    }
    let schema = &tool.input.full();
    aliases::resolve(tool.name, schema, &mut given);
    let properties = schema.get("properties").and_then(Value::as_object)?;
    given.retain(|name, value| properties.contains_key(name) && !value.is_null());
    given.values_mut().for_each(shorten);
    arguments.extend(given);
    for (name, value) in added {
        arguments.entry(*name).or_insert_with(|| json!(value));
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for missing in required.filter_map(Value::as_str) {
        let example = if missing == "name" { SOME_SANDBOX.to_owned() } else { format!("<{missing}>") };
        arguments.entry(missing).or_insert_with(|| json!(example));
    }
    let then = has(RESTART, &plain_name).then_some("sandbox_start");
    if then.is_some() && !SELECTORS.iter().any(|name| arguments.contains_key(*name)) {
        arguments.insert("name".to_owned(), json!(SOME_SANDBOX));
    }
    Some(RightCall { tool: tool.name, arguments, then })
}

/// The arguments that say which sandboxes a call is for.
fn selected(arguments: &JsonObject) -> Value {
    let given = arguments.iter().filter(|(name, _)| SELECTORS.contains(&name.as_str()));
    Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Whether `sandbox_rm` is about a sandbox: `{"name": "a"}` names no file. Other tools have `file` or `fs` in their
/// names, and must never lead to the removal of a sandbox.
fn is_of_sandbox(name: &str, given: &JsonObject) -> bool {
    let is_path =
        |name: &String| has("path filepath file filename dir directory dirpath paths", &plain(name));
    plain(name) == "sandboxrm" && !given.keys().any(is_path)
}

/// A snapshot has a `name` of its own here; elsewhere `name` is what to take one of.
fn name_its_source(given: &mut JsonObject) {
    let is_source = |name: &String| has("fromsandbox sandbox sandboxname sandboxid id", &plain(name));
    if !given.keys().any(is_source)
        && let Some(source) = given.remove("name")
    {
        given.insert("fromSandbox".to_owned(), source);
    }
}

fn has(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

/// A command given word by word, as some systems want it.
fn words(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// Long texts are in the caller's own call, and not worth being read again.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().nth(MAX_REPEATED_CHARS).is_some() => {
            *text = "<as given>".to_owned();
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(object) => object.values_mut().for_each(shorten),
        _ => {}
    }
}

/// The plain form without what nearly all names begin with, which would make every name like every other.
fn bare(name: &str) -> String {
    let plain = plain(name);
    plain.strip_prefix("sandbox").filter(|rest| !rest.is_empty()).unwrap_or(&plain).to_owned()
}

/// The tool most like `name`, if that can be a slip. No guess is better than a wrong one.
pub(super) fn nearest_tool<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = bare(name);
    known
        .map(|known| (strsim::normalized_damerau_levenshtein(&wanted, &bare(known)), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::testing::native;

    fn check(name: &str, given: Value, tool: &str, arguments: Value) {
        let call = translate(native(), name, given.as_object().cloned()).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((call.tool, Value::Object(call.arguments)), (tool, arguments), "{name}");
    }

    #[test]
    fn calls_of_other_systems_are_translated() {
        check(
            "bash",
            json!({ "command": "ls" }),
            "sandbox_shell",
            json!({ "name": SOME_SANDBOX, "command": "ls" }),
        );
        check(
            "command_run",
            json!({ "sandbox_id": "a", "command": "ls", "working_directory": "/tmp", "restart": true }),
            "sandbox_shell",
            json!({ "name": "a", "command": "ls", "cwd": "/tmp" }),
        );
        check(
            "container.exec",
            json!({ "cmd": ["ls", "-l"] }),
            "sandbox_exec",
            json!({ "name": SOME_SANDBOX, "command": "ls", "args": ["-l"] }),
        );
        check(
            "execute_python_code",
            json!({ "sandbox_id": "a", "code": "1" }),
            "sandbox_run_code",
            json!({ "name": "a", "code": "1" }),
        );
        check("run_python", json!({ "code": "1" }), "sandbox_run_code", json!({ "code": "1" }));
        check(
            "file_write",
            json!({ "sandbox_id": "a", "path": "/f", "content": "x".repeat(1000) }),
            "sandbox_fs_write",
            json!({ "name": "a", "path": "/f", "content": "<as given>" }),
        );
        check(
            "sandbox_read_file",
            json!({ "sandbox": "a", "file_path": "/f" }),
            "sandbox_fs_read",
            json!({ "name": "a", "path": "/f" }),
        );
        check(
            "str_replace_editor",
            json!({ "command": "str_replace", "path": "/f", "old_str": "a", "new_str": "b" }),
            "sandbox_fs_edit",
            json!({ "name": SOME_SANDBOX, "path": "/f", "edits": [{ "oldText": "a", "newText": "b" }] }),
        );
        check(
            "str_replace_based_edit_tool",
            json!({ "command": "create", "path": "/f", "file_text": "a" }),
            "sandbox_fs_write",
            json!({ "name": SOME_SANDBOX, "path": "/f", "content": "a" }),
        );
    }

    #[test]
    fn what_is_done_to_a_sandbox_is_not_done_to_a_file() {
        check("sandbox_rm", json!({ "name": "a" }), "sandbox_remove", json!({ "name": "a" }));
        let file = json!({ "name": "a", "path": "/f" });
        check("sandbox_rm", file.clone(), "sandbox_fs_remove", file.clone());
        check("sandbox_fs_delete", file.clone(), "sandbox_fs_remove", file);
        let no_file = json!({ "name": "a", "path": "<path>" });
        for tool in ["sandbox_fs_delete", "sandbox_delete_file"] {
            check(tool, json!({ "name": "a", "target": "/f" }), "sandbox_fs_remove", no_file.clone());
        }
        check("sandbox_logs", json!({ "name": "a" }), "sandbox_logs_read", json!({ "name": "a" }));
        check("sandbox_snapshot", json!({ "name": "a" }), "snapshot_create", json!({ "fromSandbox": "a" }));
        let restart = translate(native(), "sandbox_restart", json!({ "name": "a" }).as_object().cloned());
        let told = restart.unwrap().told(Failure::invalid("no such tool")).worded(crate::mcp::words::hint);
        let calls = r#"Call sandbox_stop with {"name":"a"}. Then call sandbox_start {"name":"a"}."#;
        assert_eq!(told.hint.as_deref(), Some(calls));
        for (given, selected) in [
            (json!({}), json!({ "name": SOME_SANDBOX })),
            (json!({ "names": ["a", "b"], "force": true }), json!({ "names": ["a", "b"] })),
            (json!({ "labels": { "team": "red" } }), json!({ "labels": { "team": "red" } })),
        ] {
            let restart = translate(native(), "restart_sandbox", given.as_object().cloned()).unwrap();
            let told = restart.told(Failure::invalid("no such tool")).worded(crate::mcp::words::hint);
            let hint = told.hint.unwrap();
            assert!(hint.contains(&format!("Then call {}.", written("sandbox_start", &selected))), "{hint}");
        }
    }

    #[test]
    fn every_line_of_the_table_names_a_tool_and_no_name_stands_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for (names, tool, added) in FOREIGN {
            let tool = native().find(tool).unwrap_or_else(|| panic!("{tool}"));
            let takes = |name: &str| tool.input.full()["properties"].get(name).is_some();
            assert!(added.iter().all(|(name, _)| takes(name)), "{}", tool.name);
            for name in names.split_whitespace() {
                assert_eq!(plain(name), name);
                assert!(seen.insert(name), "{name} stands in the table twice");
            }
        }
        assert!(EDITOR_COMMANDS.iter().all(|(_, tool)| native().find(tool).is_some()));
    }

    #[test]
    fn only_a_slip_is_guessed() {
        let names = || native().tools().map(|tool| tool.name);
        assert_eq!(nearest_tool("sandbox_exce", names()), Some("sandbox_exec"));
        assert_eq!(nearest_tool("sandbox_fs_wirte", names()), Some("sandbox_fs_write"));
        assert_eq!(nearest_tool("snapshot-create", names()), Some("snapshot_create"));
        for strange in ["sandbox_read_file", "sandbox_nothing", "sandbox_", "weather", ""] {
            assert_eq!(nearest_tool(strange, names()), None, "{strange}");
        }
    }
}
