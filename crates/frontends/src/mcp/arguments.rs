//! From a caller's JSON to a tool's arguments: every refusal names the place and what would be right.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Number, Value, json};

use super::{
    aliases::{self, Conflict, plain},
    envelope::Failure,
    located::{self, Misfit},
    schema::JsonObject,
};

/// Most problems told at once.
const MAX_PROBLEMS: usize = 8;
/// Most members of an object that are named where something else than an object is given.
const MAX_MEMBERS: usize = 6;
/// Values are quoted up to this length.
const MAX_QUOTED_CHARS: usize = 60;
/// How alike a name must be to be suggested: 0 is nothing, 1 the same.
const LIKENESS: f64 = 0.55;
/// Unknown names, in plain form, and the parameter that is meant by each. The parameter that looks most like them is
/// another one.
const MEANT: &[(&str, &str)] = &[("timeout", "maxDurationMs"), ("newname", "names"), ("newcontext", "into")];
/// Up to here every whole number has a float of its own.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The names of arguments that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Those of the tool.
    Own,
    /// Those that models bring from other systems, too.
    Aliases,
}

/// Checks against the tool's schema, then reads. `null` for something optional is the same as leaving it out; numbers
/// and truth values may be written as text, as models often do.
pub(crate) fn parse<A: DeserializeOwned>(
    tool: &str,
    schema: &JsonObject,
    arguments: Option<JsonObject>,
    names: Names,
) -> Result<A, Failure> {
    let value = checked(tool, schema, arguments, names)?;
    located::read(&value).map_err(|misfit| unreadable(tool, misfit))
}

fn checked(
    tool: &str,
    schema: &JsonObject,
    arguments: Option<JsonObject>,
    names: Names,
) -> Result<Value, Failure> {
    let mut problems = Vec::new();
    let mut value = Value::Object(arguments.unwrap_or_default());
    drop_nulls(&mut value);
    if let (Names::Aliases, Value::Object(arguments)) = (names, &mut value) {
        problems.extend(aliases::resolve(tool, schema, arguments).into_iter().map(conflicting));
    }
    convert(schema, &mut value, names);
    check(schema, &value, &mut String::new(), &mut problems);
    if problems.is_empty() { Ok(value) } else { Err(refusal(tool, problems)) }
}

fn conflicting(Conflict { at, names: [alias, name] }: Conflict) -> Problem {
    let alias: String = alias.chars().take(MAX_QUOTED_CHARS).collect();
    Problem {
        at,
        fault: Fault::Other(format!("{alias} and {name} mean the same, and are given different values")),
        nearest: Some(name),
    }
}

fn unreadable(tool: &str, Misfit { mut at, text }: Misfit) -> Failure {
    if at.is_empty() {
        at.push('.');
    }
    refusal(tool, vec![Problem { at, fault: Fault::Other(text), nearest: None }])
}

/// Returns the faults of a value, for tests that hold answers against their schemas.
#[cfg(test)]
pub(crate) fn problems(schema: &JsonObject, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(schema, value, &mut String::new(), &mut problems);
    problems.into_iter().map(|problem| format!("{}: {}", problem.at, problem.fault)).collect()
}

struct Problem {
    at: String,
    fault: Fault,
    /// The known name that an unknown one looks like.
    nearest: Option<String>,
}

enum Fault {
    /// The value is of another type, or none of those that are allowed.
    Unexpected {
        given: String,
        wanted: String,
    },
    Other(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected { given, wanted } => write!(f, "{given} is not {wanted}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

fn refusal(tool: &str, problems: Vec<Problem>) -> Failure {
    let texts: Vec<_> = problems
        .iter()
        .take(MAX_PROBLEMS)
        .map(|problem| match problem.at.as_str() {
            "" | "." => problem.fault.to_string(),
            at => format!("{at}: {}", problem.fault),
        })
        .collect();
    let nearest = problems.iter().find_map(|problem| problem.nearest.as_ref());
    let hint = match nearest {
        Some(name) => format!("Did you mean {name}? Correct the arguments and call {tool} again."),
        None => format!("Correct the arguments and call {tool} again."),
    };
    Failure::invalid(format!("invalid arguments for {tool}: {}", texts.join("; "))).with_hint(hint)
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(object) = value {
        object.retain(|_, value| !value.is_null());
        object.values_mut().for_each(drop_nulls);
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(drop_nulls);
    }
}

/// Writes numbers and truth values as the schema wants them: `5.0` where a whole number is meant, `"5000"` and `"true"`
/// where no text is; with [`Names::Aliases`], numbers as texts where a text is meant. What cannot be meant so stays
/// as it is, for [`check`] to refuse.
fn convert(schema: &JsonObject, value: &mut Value, names: Names) {
    for keyword in ["oneOf", "anyOf"] {
        if let Some(Value::Array(branches)) = schema.get(keyword) {
            return convert_branch(branches, value, names);
        }
    }
    if let Some(name) = only_number(schema).filter(|_| names == Names::Aliases && is_number(value)) {
        *value = json!({ name: value });
    }
    match value {
        Value::Object(object) => convert_object(schema, object, names),
        Value::Array(items) => {
            if let Some(Value::Object(item_schema)) = schema.get("items") {
                items.iter_mut().for_each(|item| convert(item_schema, item, names));
            }
        }
        Value::String(_) | Value::Number(_) => {
            // A secret is never converted: a number in its place is refused, and the refusal does not quote it.
            let is_secret = schema.get("format").is_some_and(|format| format == "password");
            let names = if is_secret { Names::Own } else { names };
            if let Some(converted) =
                schema.get("type").and_then(|kind| converted(kind.as_str()?, value, names))
            {
                *value = converted;
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns the only required member of an object, if that is a number: then `8000` stands for `{"port": 8000}`.
fn only_number(schema: &JsonObject) -> Option<&str> {
    let [only] = schema.get("required")?.as_array()?.as_slice() else { return None };
    let property = schema.get("properties")?.get(only.as_str()?)?;
    if property.get("type")? == "integer" { only.as_str() } else { None }
}

fn is_number(value: &Value) -> bool {
    value.is_number() || value.as_str().is_some_and(|text| text.parse::<u64>().is_ok())
}

fn convert_object(schema: &JsonObject, object: &mut JsonObject, names: Names) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let others = schema.get("additionalProperties").and_then(Value::as_object);
    for (name, value) in object {
        let property = properties.and_then(|properties| properties.get(name)?.as_object());
        // A mode in a text is read as octal: a number must not become such a text.
        if let Some(property) = property.or(others).filter(|_| name != "mode") {
            convert(property, value, names);
        }
    }
}

/// By the first branch that takes it as it is; else by the first that takes it converted.
fn convert_branch(branches: &[Value], value: &mut Value, names: Names) {
    let fits = |branch: &JsonObject, value: &Value| {
        let mut found = Vec::new();
        check(branch, value, &mut String::new(), &mut found);
        found.is_empty()
    };
    let branches = || branches.iter().filter_map(Value::as_object);
    if let Some(branch) = branches().find(|branch| fits(branch, value)) {
        return convert(branch, value, names);
    }
    for branch in branches() {
        let mut other = value.clone();
        convert(branch, &mut other, names);
        if fits(branch, &other) {
            *value = other;
            return;
        }
    }
}

fn converted(kind: &str, value: &Value, names: Names) -> Option<Value> {
    let number = |text: &str| text.parse::<Number>().ok();
    match (kind, value) {
        ("integer", Value::Number(given)) => whole(given).map(Value::Number),
        ("integer", Value::String(text)) => {
            let given = number(text)?;
            Some(Value::Number(whole(&given).unwrap_or(given)))
        }
        ("number", Value::String(text)) => number(text).map(Value::Number),
        ("boolean", Value::String(text)) => text.parse().ok().map(Value::Bool),
        ("string", Value::Number(given)) if names == Names::Aliases => Some(Value::String(given.to_string())),
        _ => None,
    }
}

/// 5 for 5.0. `None` for what is no whole number, or one that is too large to be told from its neighbours.
fn whole(number: &Number) -> Option<Number> {
    if !number.is_f64() {
        return Some(number.clone());
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MAX_EXACT)?;
    format!("{float:.0}").parse().ok()
}

/// The part of JSON Schema that our own schemas use: types, names, enumerations, bounds, and one-of by a constant.
fn check(schema: &JsonObject, value: &Value, at: &mut String, problems: &mut Vec<Problem>) {
    for keyword in ["oneOf", "anyOf"] {
        if let Some(Value::Array(branches)) = schema.get(keyword) {
            return check_branches(branches, value, at, problems);
        }
    }
    if !has_type(schema, value) {
        let wanted = schema.get("type").map(|kind| type_words(kind) + &members(schema)).unwrap_or_default();
        let is_secret = schema.get("format").is_some_and(|format| format == "password");
        let given = if is_secret { "the given value".to_owned() } else { quoted(value) };
        return problems.push(Problem {
            at: at.clone(),
            fault: Fault::Unexpected { given, wanted },
            nearest: None,
        });
    }
    if schema.get("type").is_some_and(|kind| kind == "integer")
        && value.as_f64().is_some_and(|number| value.is_f64() && number.abs() > MAX_EXACT)
    {
        return tell(problems, at, format!("{} is too large", quoted(value)));
    }
    check_enum(schema, value, at, problems);
    check_bounds(schema, value, at, problems);
    match value {
        Value::Object(object) => check_object(schema, object, at, problems),
        Value::Array(items) => {
            if let Some(Value::Object(item_schema)) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    within(at, &format!("[{index}]"), |at| check(item_schema, item, at, problems));
                }
            }
        }
        _ => {}
    }
}

fn check_object(schema: &JsonObject, object: &JsonObject, at: &mut String, problems: &mut Vec<Problem>) {
    let empty = JsonObject::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str).filter(|name| !object.contains_key(*name)) {
        tell(problems, at, format!("{name} is missing{}", choices(properties.get(name))));
    }
    for (name, value) in object {
        let place = if at.is_empty() { name.clone() } else { format!(".{name}") };
        match (properties.get(name), schema.get("additionalProperties")) {
            (Some(Value::Object(property)), _) | (None, Some(Value::Object(property))) => {
                within(at, &place, |at| check(property, value, at, problems));
            }
            (None, Some(Value::Bool(false))) => problems.push(unknown(name, properties, object, at)),
            _ => {}
        }
    }
}

/// `given`: the object with the unknown name. A parameter that it has already is not suggested.
fn unknown(name: &str, properties: &JsonObject, given: &JsonObject, at: &str) -> Problem {
    let name: String = name.chars().take(MAX_QUOTED_CHARS).collect();
    let free = || properties.keys().map(String::as_str).filter(|known| !given.contains_key(*known));
    let meant = MEANT.iter().filter(|(alias, _)| *alias == plain(&name)).map(|(_, known)| *known);
    let nearest = meant.into_iter().find(|meant| free().any(|known| known == *meant));
    let nearest = nearest.or_else(|| self::nearest(&name, free()));
    let text = match nearest {
        Some(known) => format!("unknown argument {name:?}; the nearest is {known:?}"),
        None if properties.is_empty() => format!("unknown argument {name:?}; there are no arguments"),
        None => {
            let known: Vec<_> = properties.keys().map(String::as_str).collect();
            format!("unknown argument {name:?}; known are {}", known.join(", "))
        }
    };
    Problem { at: at.to_owned(), fault: Fault::Other(text), nearest: nearest.map(str::to_owned) }
}

/// The known name most like `name`, if one is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = plain(name);
    known
        .map(|known| (strsim::normalized_damerau_levenshtein(&wanted, &plain(known)), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

/// A value must fit one branch; where a branch's constants fit, its problems are the ones to tell. A value that is
/// nothing of what the branches take is told all that they take.
fn check_branches(branches: &[Value], value: &Value, at: &mut String, problems: &mut Vec<Problem>) {
    if let Some((name, known)) = unknown_kind(branches, value) {
        let place = if at.is_empty() { name.to_owned() } else { format!(".{name}") };
        let kinds = JsonObject::from_iter([("enum".to_owned(), known.into())]);
        return within(at, &place, |at| check_enum(&kinds, &value[name], at, problems));
    }
    let mut best: Option<(bool, Vec<Problem>)> = None;
    let mut alternatives = Some(Vec::new());
    for branch in branches.iter().filter_map(Value::as_object) {
        let mut found = Vec::new();
        check(branch, value, at, &mut found);
        if found.is_empty() {
            return;
        }
        let alternative = match found.as_slice() {
            [Problem { at: place, fault: Fault::Unexpected { wanted, .. }, .. }] if place == at => {
                Some(wanted.clone())
            }
            _ => None,
        };
        match (&mut alternatives, alternative) {
            (Some(known), Some(alternative)) if !known.contains(&alternative) => known.push(alternative),
            (_, Some(_)) => {}
            (_, None) => alternatives = None,
        }
        let is_meant = constants_fit(branch, value);
        let is_better = match &best {
            None => true,
            Some((best_is_meant, best)) => (is_meant, best.len()) > (*best_is_meant, found.len()),
        };
        if is_better {
            best = Some((is_meant, found));
        }
    }
    let mut best = best.map(|(_, found)| found).unwrap_or_default();
    if let (Some(alternatives), [Problem { fault: Fault::Unexpected { wanted, .. }, .. }]) =
        (alternatives, best.as_mut_slice())
    {
        *wanted = alternatives.join(" or ");
    }
    problems.extend(best);
}

/// The property that tells the branches apart, with all that it may be, where a value has it and is none of them.
fn unknown_kind<'a>(branches: &'a [Value], value: &Value) -> Option<(&'a str, Vec<&'a str>)> {
    let constant = |branch: &'a Value, name: &str| branch["properties"][name]["const"].as_str();
    let properties = branches.first()?["properties"].as_object()?;
    let name =
        properties.keys().find(|name| branches.iter().all(|branch| constant(branch, name).is_some()))?;
    let known: Vec<_> = branches.iter().filter_map(|branch| constant(branch, name)).collect();
    let is = value.get(name)?;
    (!known.iter().any(|known| is == known)).then_some((name, known))
}

fn constants_fit(branch: &JsonObject, value: &Value) -> bool {
    let properties = branch.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| {
        let mut constants =
            properties.iter().filter_map(|(name, property)| Some((name, property.get("const")?))).peekable();
        constants.peek().is_some() && constants.all(|(name, constant)| value.get(name) == Some(constant))
    })
}

fn has_type(schema: &JsonObject, value: &Value) -> bool {
    let fits = |kind: &str| match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    };
    match schema.get("type") {
        Some(Value::String(kind)) => fits(kind),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).any(fits),
        _ => true,
    }
}

/// ` with port, hostPort` for an object, or a list of them, with members that are known.
fn members(schema: &JsonObject) -> String {
    let properties = schema.get("properties").or_else(|| schema.get("items")?.get("properties"));
    let names: Vec<_> =
        properties.and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name).collect();
    if names.is_empty() {
        return String::new();
    }
    let required = schema.get("required").or_else(|| schema.get("items")?.get("required"));
    let is_required =
        |name: &str| required.and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == name));
    let (first, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_required(name));
    let named: Vec<_> = first.into_iter().chain(others).take(MAX_MEMBERS).map(String::as_str).collect();
    let of = if schema.contains_key("items") { " of objects" } else { "" };
    format!("{of} with {}", named.join(", "))
}

/// What a missing value may be, where there are few such values.
fn choices(property: Option<&Value>) -> String {
    let allowed = property.and_then(|property| property.get("enum")?.as_array());
    let words: Vec<_> = allowed.into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() { String::new() } else { format!(" (one of {})", words.join(", ")) }
}

fn type_words(kind: &Value) -> String {
    let word = |kind: &str| match kind {
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "a text",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        _ => "what is expected here",
    };
    match kind {
        Value::String(kind) => word(kind).to_owned(),
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).map(word).collect::<Vec<_>>().join(" or ")
        }
        _ => String::new(),
    }
}

fn check_enum(schema: &JsonObject, value: &Value, at: &str, problems: &mut Vec<Problem>) {
    let allowed = match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(allowed)), _) => allowed.clone(),
        (_, Some(constant)) => vec![constant.clone()],
        _ => return,
    };
    if allowed.contains(value) {
        return;
    }
    let words: Vec<_> = allowed.iter().filter_map(Value::as_str).collect();
    let nearest = value.as_str().and_then(|text| nearest(text, words.iter().copied())).map(str::to_owned);
    let fault = Fault::Unexpected { given: quoted(value), wanted: format!("one of {}", words.join(", ")) };
    problems.push(Problem { at: at.to_owned(), fault, nearest });
}

fn check_bounds(schema: &JsonObject, value: &Value, at: &str, problems: &mut Vec<Problem>) {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    if let Some(number) = value.as_f64() {
        if bound("minimum").is_some_and(|least| number < least) {
            tell(problems, at, format!("{value} is less than {}", schema["minimum"]));
        }
        if bound("exclusiveMinimum").is_some_and(|least| number <= least) {
            tell(problems, at, format!("{value} is not more than {}", schema["exclusiveMinimum"]));
        }
        if bound("maximum").is_some_and(|most| number > most) {
            tell(problems, at, format!("{value} is more than {}", schema["maximum"]));
        }
    }
    if let (Value::Array(items), Some(least)) = (value, bound("minItems"))
        && (items.len() as f64) < least
    {
        tell(problems, at, format!("{} items are fewer than {}", items.len(), schema["minItems"]));
    }
}

fn tell(problems: &mut Vec<Problem>, at: &str, text: String) {
    problems.push(Problem { at: at.to_owned(), fault: Fault::Other(text), nearest: None });
}

fn within(at: &mut String, step: &str, visit: impl FnOnce(&mut String)) {
    let len = at.len();
    at.push_str(step);
    visit(at);
    at.truncate(len);
}

fn quoted(value: &Value) -> String {
    let text = value.to_string();
    match text.chars().nth(MAX_QUOTED_CHARS) {
        Some(_) => format!("{}…", text.chars().take(MAX_QUOTED_CHARS).collect::<String>()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::mcp::schema;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    struct Sample {
        name: String,
        #[schemars(range(min = 1, max = 10))]
        max_bytes: Option<u32>,
        status: Option<Status>,
        rootfs: Option<Rootfs>,
        lists: Option<Vec<Inner>>,
        is_quick: Option<bool>,
        share: Option<f64>,
        either: Option<Either>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Status(Status),
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Status {
        Running,
        Stopped,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Rootfs {
        Oci { reference: String },
        Bind { path: String },
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Inner {
        soft: u64,
    }

    fn read(value: Value) -> Result<Sample, Failure> {
        parse("sandbox_try", &schema::input::<Sample>(), value.as_object().cloned(), Names::Own)
    }

    fn refused(value: Value) -> String {
        let failure = read(value).unwrap_err();
        let told = failure.worded(crate::mcp::words::hint);
        assert_eq!(told.code, "invalid_request");
        format!("{} | {}", told.message, told.hint.unwrap())
    }

    #[test]
    fn good_arguments_are_read_and_null_is_absent() {
        let sample = read(json!({ "name": "a", "maxBytes": null, "status": "running" })).unwrap();
        assert_eq!((sample.max_bytes, sample.status), (None, Some(Status::Running)));
        assert!(read(json!({ "name": "a", "rootfs": { "kind": "oci", "reference": "x" } })).is_ok());
    }

    #[test]
    fn numbers_and_truth_may_be_written_otherwise() {
        let sample = read(json!({
            "name": "5", "maxBytes": 5.0, "lists": [{ "soft": "5000" }], "isQuick": "true", "share": "0.5",
            "either": "7",
        }))
        .unwrap();
        assert_eq!((sample.name.as_str(), sample.max_bytes, sample.share), ("5", Some(5), Some(0.5)));
        assert_eq!((sample.is_quick, sample.either), (Some(true), Some(Either::Number(7))));
        assert_eq!(sample.lists, Some(vec![Inner { soft: 5000 }]));
        let sample = read(json!({ "name": "a", "isQuick": "false", "either": 3.0 })).unwrap();
        assert_eq!((sample.is_quick, sample.either), (Some(false), Some(Either::Number(3))));
    }

    #[test]
    fn a_number_is_a_text_for_those_who_bring_names_too() {
        let given = json!({ "name": 5, "either": 7 });
        let sample: Sample =
            parse("sandbox_try", &schema::input::<Sample>(), given.as_object().cloned(), Names::Aliases)
                .unwrap();
        assert_eq!((sample.name.as_str(), sample.either), ("5", Some(Either::Number(7))));
        let schema = json!({ "properties": { "mode": { "type": "string" } } });
        let mut given = json!({ "mode": 420 });
        convert(schema.as_object().unwrap(), &mut given, Names::Aliases);
        assert_eq!(given, json!({ "mode": 420 }));
    }

    #[test]
    fn a_number_stands_for_an_object_that_needs_nothing_else() {
        let schema = json!({ "properties": { "expose": {
            "type": "object", "required": ["port"],
            "properties": { "port": { "type": "integer" }, "hostPort": { "type": "integer" } },
        } } });
        let schema = schema.as_object().unwrap();
        for given in [json!(8000), json!("8000")] {
            let mut arguments = json!({ "expose": given });
            convert(schema, &mut arguments, Names::Aliases);
            assert_eq!(arguments, json!({ "expose": { "port": 8000 } }));
        }
        let problems = problems(schema, &json!({ "expose": "web" }));
        assert_eq!(problems, ["expose: \"web\" is not an object with port, hostPort"]);
    }

    #[test]
    fn nothing_else_is_taken_for_a_number_or_for_truth() {
        for (field, wrong, told) in [
            ("maxBytes", json!(1e30), "is too large"),
            ("maxBytes", json!("1e30"), "is too large"),
            ("maxBytes", json!(5.5), "5.5 is not a whole number"),
            ("maxBytes", json!("11"), "11 is more than 10"),
            ("maxBytes", json!("five"), "\"five\" is not a whole number"),
            ("maxBytes", json!(""), "is not a whole number"),
            ("maxBytes", json!(true), "is not a whole number"),
            ("isQuick", json!("yes"), "\"yes\" is not true or false"),
            ("isQuick", json!(1), "1 is not true or false"),
            ("share", json!("nan"), "is not a number"),
            ("name", json!(5), "5 is not a text"),
            ("either", json!("x"), "\"x\" is not a whole number or one of running, stopped"),
        ] {
            let mut arguments = json!({ "name": "a" });
            arguments[field] = wrong;
            let text = refused(arguments);
            assert!(text.contains(told), "{told:?} in {text}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest_known_one() {
        let text = refused(json!({ "name": "a", "max_bytes": 3 }));
        assert!(
            text.contains("unknown argument \"max_bytes\"") && text.contains("Did you mean maxBytes?"),
            "{text}"
        );
        let text = refused(json!({ "name": "a", "rootfs": { "kind": "oci", "referense": "x" } }));
        assert!(text.contains("rootfs: reference is missing") && text.contains("reference?"), "{text}");
    }

    #[test]
    fn what_is_given_already_is_not_suggested() {
        let text = refused(json!({ "name": "a", "names": "b" }));
        assert!(!text.contains("Did you mean") && text.contains("known are either, isQuick"), "{text}");
        let properties = json!({ "idleTimeout": {}, "maxDurationMs": {} });
        let (properties, none) = (properties.as_object().unwrap(), JsonObject::new());
        let nearest = |name: &str| unknown(name, properties, &none, "").nearest;
        assert_eq!(nearest("timeout").as_deref(), Some("maxDurationMs"));
        assert_eq!(nearest("idle_timeout").as_deref(), Some("idleTimeout"));
        let problem = unknown("name", &none, &none, "");
        assert_eq!(problem.fault.to_string(), "unknown argument \"name\"; there are no arguments");
    }

    #[test]
    fn every_problem_is_told_with_its_place() {
        let text = refused(json!({ "maxBytes": 11, "status": "runing", "lists": [{ "soft": "x" }] }));
        for part in [
            "name is missing",
            "maxBytes: 11 is more than 10",
            "status: \"runing\" is not one of running, stopped",
            "lists[0].soft: \"x\" is not a whole number",
            "Did you mean running?",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
