//! Names of arguments that models bring from other systems, and what they are called here.
//!
//! An alias counts only where the tool has no parameter of that name itself. Given beside the parameter that it stands
//! for, both must say the same.

use serde_json::{Number, Value, json};

use super::{mount_words, schema::JsonObject};

/// An alias, in plain form, and the parameters that it may stand for: the first that the tool has.
const ALIASES: &[(&str, &[&str])] = &[
    ("sandbox", &["fromSandbox", SANDBOX]),
    ("sandboxname", &["fromSandbox", SANDBOX]),
    ("sandboxid", &["fromSandbox", SANDBOX]),
    ("id", &[SANDBOX, "execSessionId", "pathOrName", "reference"]),
    ("name", &["pathOrName", "reference"]),
    ("volume", &["name"]),
    ("volumename", &["name"]),
    ("image", &["reference"]),
    ("imagename", &["reference", "image"]),
    ("snapshot", &["pathOrName"]),
    ("snapshotname", &["snapshot", "pathOrName", "name"]),
    ("snapshotid", &["snapshot", "pathOrName"]),
    ("session", &["execSessionId"]),
    ("sessionid", &["execSessionId"]),
    ("exec", &["execSessionId"]),
    ("execid", &["execSessionId"]),
    ("cmd", &["command"]),
    ("commandline", &["command"]),
    ("script", &["command", "code"]),
    ("sourcecode", &["code"]),
    ("pythoncode", &["code"]),
    ("lang", &["language"]),
    ("arguments", &["args"]),
    ("argv", &["args"]),
    ("workingdir", &["cwd"]),
    ("workingdirectory", &["cwd"]),
    ("workdir", &["cwd"]),
    ("envs", &["env"]),
    ("envvars", &["env"]),
    ("environment", &["env"]),
    ("file", &["path"]),
    ("filepath", &["path"]),
    ("filename", &["path"]),
    ("dir", &["path", "cwd"]),
    ("directory", &["path", "cwd"]),
    ("dirpath", &["path"]),
    ("text", &["content", "data"]),
    ("contents", &["content"]),
    ("filetext", &["content"]),
    ("filecontent", &["content"]),
    ("input", &["data", "stdin"]),
    ("oldstring", &["oldText"]),
    ("oldstr", &["oldText"]),
    ("newstring", &["newText"]),
    ("newstr", &["newText"]),
    ("src", &["from"]),
    ("source", &["from", "code"]),
    ("sourcepath", &["from"]),
    ("oldpath", &["from"]),
    ("dest", &["to"]),
    ("dst", &["to"]),
    ("destination", &["to"]),
    ("destinationpath", &["to"]),
    ("destpath", &["to"]),
    ("newpath", &["to"]),
    ("pattern", &["grep", "glob"]),
    ("regex", &["grep"]),
    ("packagename", &["package"]),
    ("requirements", &["requirementsFile"]),
    ("startlinenumber", &["startLine"]),
    ("endlinenumber", &["endLine"]),
];

/// The parameter `name` of tools whose `name` is a sandbox's.
const SANDBOX: &str = "name of a sandbox";

/// Aliases that are counted in seconds, of parameters in milliseconds.
const SECONDS: &[(&str, &str)] = &[
    ("timeout", "timeoutMs"),
    ("timeoutsec", "timeoutMs"),
    ("timeoutsecs", "timeoutMs"),
    ("timeoutseconds", "timeoutMs"),
    ("wait", "waitMs"),
    ("waitsecs", "waitMs"),
    ("waitseconds", "waitMs"),
];

/// A list of objects, whose members may stand beside it where there is only one of them.
const LIFTED: (&str, [&str; 3]) = ("edits", ["oldText", "newText", "replaceAll"]);

/// Two names of one parameter with different values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The place of the object that has both.
    pub(super) at: String,
    pub(super) names: [String; 2],
}

/// Gives arguments their names here, and reads lists and objects that were written as text.
pub(super) fn resolve(tool: &str, schema: &JsonObject, arguments: &mut JsonObject) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    decode(schema, arguments);
    mount_words::rewrite(schema, arguments);
    lift(schema, arguments);
    rename(tool, schema, arguments, "", &mut conflicts);
    say_in_a_line(schema, arguments);
    conflicts
}

/// Rewrites a command that is given as a list of words: as a program with `args` where the tool has those, else as a
/// line for the shell.
fn say_in_a_line(schema: &JsonObject, arguments: &mut JsonObject) {
    let takes = |name: &str| properties(schema).is_some_and(|properties| properties.contains_key(name));
    let words = arguments.get("command").and_then(Value::as_array).filter(|words| !words.is_empty());
    let words = words.and_then(|words| words.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let (true, Some(words)) = (takes("command"), words) else { return };
    if !takes("args") {
        // A single word is a line already: no program has a name with blanks.
        let line = match words.as_slice() {
            [line] => (*line).to_owned(),
            words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        };
        arguments.insert("command".to_owned(), Value::String(line));
    } else if !arguments.contains_key("args") {
        let (program, args) = (json!(words[0]), json!(words[1..]));
        arguments.insert("command".to_owned(), program);
        arguments.insert("args".to_owned(), args);
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Lower case, without the signs that part words.
pub(super) fn plain(name: &str) -> String {
    name.to_lowercase().replace(['_', '-', '.', ' '], "")
}

fn properties(schema: &JsonObject) -> Option<&JsonObject> {
    schema.get("properties").and_then(Value::as_object)
}

/// Reads the JSON in a text where only a list or an object can be meant. What is no JSON stays, to be refused.
fn decode(schema: &JsonObject, arguments: &mut JsonObject) {
    let Some(properties) = properties(schema) else { return };
    for (name, value) in arguments {
        let known = properties.get(name).or_else(|| properties.get(target("", properties, name)?));
        let Some(wanted) = known.and_then(|property| property.get("type")?.as_str()) else { continue };
        let Value::String(text) = &*value else { continue };
        let decoded = serde_json::from_str::<Value>(text).ok();
        let fits = |decoded: &Value| match wanted {
            "array" => decoded.is_array(),
            "object" => decoded.is_object(),
            _ => false,
        };
        if let Some(decoded) = decoded.filter(fits) {
            *value = decoded;
        }
    }
}

/// Makes a list of one from members that stand where the list should.
fn lift(schema: &JsonObject, arguments: &mut JsonObject) {
    let (list, members) = LIFTED;
    let Some(properties) = properties(schema) else { return };
    if !properties.contains_key(list) || arguments.contains_key(list) {
        return;
    }
    let is_member = |name: &String| {
        let meant = own_or_alias(name);
        !properties.contains_key(name) && members.iter().any(|member| plain(member) == meant)
    };
    let names: Vec<String> = arguments.keys().filter(|name| is_member(name)).cloned().collect();
    if names.is_empty() {
        return;
    }
    let one: JsonObject = names.into_iter().filter_map(|name| arguments.remove_entry(&name)).collect();
    arguments.insert(list.to_owned(), Value::Array(vec![Value::Object(one)]));
}

/// The plain form of what an alias stands for, or of the name itself.
fn own_or_alias(name: &str) -> String {
    let name = plain(name);
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, meant)| plain(meant[0]))
}

fn rename(tool: &str, schema: &JsonObject, object: &mut JsonObject, at: &str, conflicts: &mut Vec<Conflict>) {
    let Some(properties) = properties(schema) else { return };
    let strange: Vec<String> =
        object.keys().filter(|name| !properties.contains_key(name.as_str())).cloned().collect();
    let mut renamed = JsonObject::new();
    for alias in strange {
        let (meant, factor) = match target(tool, properties, &alias) {
            Some(meant) => (meant.to_owned(), None),
            None => match in_seconds(properties, &alias) {
                Some(meant) => (meant.to_owned(), Some(1000.0)),
                None => continue,
            },
        };
        let Some(value) = object.remove(&alias) else { continue };
        let value = factor.map_or_else(|| value.clone(), |factor| multiplied(&value, factor));
        let other = object.get(&meant).or_else(|| renamed.get(&meant));
        if other.is_some_and(|other| *other != value) {
            conflicts.push(Conflict { at: at.to_owned(), names: [alias, meant] });
        } else {
            renamed.insert(meant, value);
        }
    }
    object.extend(renamed);
    for (name, value) in object {
        let Some(Value::Object(property)) = properties.get(name) else { continue };
        let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        match (value, property.get("items")) {
            (Value::Object(inner), _) => rename(tool, property, inner, &at, conflicts),
            (Value::Array(items), Some(Value::Object(schema))) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if let Value::Object(item) = item {
                        rename(tool, schema, item, &format!("{at}[{index}]"), conflicts);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The parameter that a name stands for: one that is written the same but for case and signs, else by the table.
fn target<'a>(tool: &str, properties: &'a JsonObject, name: &str) -> Option<&'a str> {
    let wanted = plain(name);
    if let Some(same) = properties.keys().find(|known| plain(known) == wanted) {
        return Some(same);
    }
    let (_, meant) = ALIASES.iter().find(|(alias, _)| *alias == wanted)?;
    meant.iter().find_map(|meant| {
        let known = match *meant {
            SANDBOX if !names_a_sandbox(tool) => return None,
            SANDBOX => "name",
            "name" if names_a_sandbox(tool) => return None,
            meant => meant,
        };
        properties.get_key_value(known).map(|(known, _)| known.as_str())
    })
}

fn names_a_sandbox(tool: &str) -> bool {
    tool.starts_with("sandbox_") || tool.starts_with("code_")
}

fn in_seconds<'a>(properties: &'a JsonObject, name: &str) -> Option<&'a str> {
    let wanted = plain(name);
    let (_, meant) = SECONDS.iter().find(|(alias, _)| *alias == wanted)?;
    properties.get_key_value(*meant).map(|(known, _)| known.as_str())
}

/// A number, also one written as text, times a factor. Everything else stays, to be refused.
fn multiplied(value: &Value, factor: f64) -> Value {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let number = number.map(|number| (number * factor).round()).and_then(Number::from_f64);
    number.map_or_else(|| value.clone(), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::testing::native;

    fn resolved(tool: &str, given: Value) -> Value {
        let schema = native().find(tool).unwrap().input.checked();
        let mut arguments = given.as_object().cloned().unwrap();
        let conflicts = resolve(tool, schema, &mut arguments);
        assert_eq!(conflicts, [], "{given}");
        Value::Object(arguments)
    }

    fn check(tool: &str, given: Value, expected: Value) {
        assert_eq!(resolved(tool, given), expected, "{tool}");
    }

    #[test]
    fn a_command_in_words_is_a_program_with_args_or_a_line() {
        let read = |tool: &str, words: Value| {
            let schema = native().find(tool).unwrap().input.checked().clone();
            let mut arguments = JsonObject::from_iter([("command".to_owned(), words)]);
            assert!(resolve(tool, &schema, &mut arguments).is_empty());
            Value::Object(arguments)
        };
        let words = json!(["ls", "-l", "it's here"]);
        assert_eq!(
            read("sandbox_exec", words.clone()),
            json!({ "command": "ls", "args": ["-l", "it's here"] })
        );
        assert_eq!(read("sandbox_shell", words), json!({ "command": r"ls -l 'it'\''s here'" }));
        assert_eq!(read("sandbox_shell", json!(["cd /x && ls"])), json!({ "command": "cd /x && ls" }));
    }

    #[test]
    fn names_from_elsewhere_become_ours() {
        for alias in ["sandbox", "sandbox_name", "sandboxName", "id", "sandbox_id", "sandboxId"] {
            check(
                "sandbox_exec",
                json!({ alias: "a", "cmd": "ls" }),
                json!({ "name": "a", "command": "ls" }),
            );
        }
        check(
            "sandbox_exec_poll",
            json!({ "id": "x", "max_bytes": 5 }),
            json!({ "execSessionId": "x", "maxBytes": 5 }),
        );
        check("snapshot_inspect", json!({ "name": "ready" }), json!({ "pathOrName": "ready" }));
        check("volume_inspect", json!({ "volume": "data" }), json!({ "name": "data" }));
        check(
            "sandbox_fs_write",
            json!({ "name": "a", "file_path": "/a", "text": "x" }),
            json!({ "name": "a", "path": "/a", "content": "x" }),
        );
        check(
            "sandbox_exec_write_stdin",
            json!({ "session_id": "x", "text": "y" }),
            json!({ "execSessionId": "x", "data": "y" }),
        );
    }

    #[test]
    fn a_parameter_of_the_tool_is_no_alias() {
        // A snapshot has a name of its own, and so has a volume.
        check(
            "snapshot_create",
            json!({ "name": "s", "sandbox": "a" }),
            json!({ "name": "s", "fromSandbox": "a" }),
        );
        check("volume_inspect", json!({ "sandbox": "a" }), json!({ "sandbox": "a" }));
        let exec = json!({ "name": "a", "workdir": "/tmp", "command": "x" });
        check("sandbox_exec", exec.clone(), exec);
        // Variables are the caller's own names.
        let env = json!({ "name": "a", "command": "x", "env": { "cmd": "1", "sandbox_id": "2" } });
        check("sandbox_exec", env.clone(), env);
    }

    #[test]
    fn one_edit_may_stand_where_the_list_should() {
        let edits = json!([{ "oldText": "a", "newText": "b" }]);
        let expected = json!({ "name": "a", "path": "/f", "edits": edits });
        for (old, new) in [("old_string", "new_string"), ("old_str", "new_str"), ("oldText", "newText")] {
            check(
                "sandbox_fs_edit",
                json!({ "name": "a", "path": "/f", old: "a", new: "b" }),
                expected.clone(),
            );
            let listed = json!({ "name": "a", "path": "/f", "edits": [{ old: "a", new: "b" }] });
            check("sandbox_fs_edit", listed, expected.clone());
            let text = json!([{ old: "a", new: "b" }]).to_string();
            check("sandbox_fs_edit", json!({ "name": "a", "path": "/f", "edits": text }), expected.clone());
        }
    }

    #[test]
    fn lists_and_objects_may_be_written_as_text() {
        check(
            "sandbox_exec",
            json!({ "name": "a", "command": "ls", "args": "[\"-l\"]", "envs": "{\"A\": \"1\"}" }),
            json!({ "name": "a", "command": "ls", "args": ["-l"], "env": { "A": "1" } }),
        );
        // A value that is no list stays to be refused, and a text stays a text.
        check("sandbox_exec", json!({ "args": "-l" }), json!({ "args": "-l" }));
        check("sandbox_fs_write", json!({ "content": "[1]" }), json!({ "content": "[1]" }));
    }

    #[test]
    fn two_names_of_one_thing_must_agree() {
        check("sandbox_exec", json!({ "name": "a", "sandbox_id": "a" }), json!({ "name": "a" }));
        let schema = native().find("sandbox_exec").unwrap().input.checked();
        for (given, names) in [
            (json!({ "name": "a", "sandbox_id": "b" }), ["sandbox_id", "name"]),
            (json!({ "id": "a", "sandbox_id": "b" }), ["sandbox_id", "name"]),
        ] {
            let mut arguments = given.as_object().cloned().unwrap();
            let conflicts = resolve("sandbox_exec", schema, &mut arguments);
            let names = names.map(str::to_owned);
            assert_eq!(conflicts, [Conflict { at: String::new(), names }], "{given}");
        }
    }

    #[test]
    fn seconds_become_milliseconds() {
        check("sandbox_exec", json!({ "timeout_seconds": "1.5" }), json!({ "timeoutMs": 1500.0 }));
        check("sandbox_exec", json!({ "timeout_seconds": "soon" }), json!({ "timeoutMs": "soon" }));
    }

    #[test]
    fn the_tables_are_in_plain_form_and_have_no_name_twice() {
        let names = ALIASES.iter().map(|(alias, _)| *alias).chain(SECONDS.iter().map(|(alias, _)| *alias));
        let mut seen = std::collections::BTreeSet::new();
        for name in names {
            assert_eq!(plain(name), name);
            assert!(seen.insert(name), "{name} stands in the table twice");
        }
    }
}
