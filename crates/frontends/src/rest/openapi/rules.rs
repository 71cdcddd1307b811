//! What a value must look like to be taken, put into the document by the value's name: one word means one thing in every
//! request, and whoever reads the document should not have to try.

use serde_json::Value;
use utoipa::openapi::{
    OpenApi, RefOr, Schema,
    path::Parameter,
    schema::{ArrayItems, Object, SchemaFormat, SchemaType, Type},
};

const NAME: Rule = Rule::Text { pattern: "^[A-Za-z0-9][A-Za-z0-9._-]*$", longest: 63 };
/// Beneath an absolute path anything goes but NUL.
const PATH: Rule = Rule::Text { pattern: "^/[^\\u0000]*$", longest: 4095 };
const SOME_TEXT: Rule = Rule::Text { pattern: "^[^\\u0000]+$", longest: 4095 };
const MODE: Rule = Rule::Text { pattern: "^[0-7]{1,4}$", longest: 4 };
const MANAGER: Rule = Rule::OneOf(&["pip", "npm", "apt"]);
const WRITE: Rule = Rule::OneOf(&["replace", "append", "createNew"]);
const STATE: Rule = Rule::OneOf(&["creating", "running", "paused", "stopping", "stopped", "failed"]);
/// An hour, in milliseconds.
const GRACE: Rule = Rule::Within(0, 3_600_000);

/// Of parameters in paths and queries.
const PARAMETERS: &[(&str, Rule)] = &[
    ("namespace", NAME),
    ("sandbox", NAME),
    ("volume", NAME),
    ("path", PATH),
    ("root", PATH),
    ("mode", MODE),
    ("manager", MANAGER),
    ("state", STATE),
    ("write", WRITE),
    ("graceMs", GRACE),
    ("port", Rule::Within(1, u16::MAX as usize)),
];

/// Of members of request bodies, by the schema they are in; `*` stands for all of [`BODIES`].
const MEMBERS: &[(&str, &str, Rule)] = &[
    ("*", "namespace", NAME),
    ("*", "path", PATH),
    ("*", "from", PATH),
    ("*", "to", PATH),
    ("*", "cwd", PATH),
    ("*", "mode", MODE),
    ("*", "manager", MANAGER),
    ("*", "rows", Rule::Within(1, u16::MAX as usize)),
    ("*", "cols", Rule::Within(1, u16::MAX as usize)),
    ("*", "signal", Rule::Within(1, 64)),
    ("*", "timeoutMs", Rule::Within(1, usize::MAX)),
    ("*", "requestId", Rule::Text { pattern: "^[A-Za-z0-9][A-Za-z0-9._-]*$", longest: 128 }),
    ("ContextRequest", "name", NAME),
    ("ForkRequest", "into", NAME),
    ("RestoreRequest", "name", NAME),
    ("SandboxSpec", "name", NAME),
    ("SandboxSpec", "hostname", NAME),
    ("SnapshotRequest", "name", NAME),
    ("SnapshotRequest", "sandbox", NAME),
    ("SymlinkRequest", "target", SOME_TEXT),
    ("VolumeRequest", "name", NAME),
    ("VolumeRequest", "kind", Rule::OneOf(&["directory", "disk"])),
];

/// Schemas that only requests have: what is sent back may be older than a rule.
const BODIES: &[&str] = &[
    "ChmodRequest",
    "ChownRequest",
    "CodeRequest",
    "ContextRequest",
    "CopyRequest",
    "ExecSpec",
    "ForkRequest",
    "ForkSandboxRequest",
    "KeyRequest",
    "LinkRequest",
    "MkdirRequest",
    "PackageRequest",
    "RemoveRequest",
    "RenameRequest",
    "ResizeRequest",
    "RestoreRequest",
    "SandboxSpec",
    "SignalRequest",
    "SnapshotRequest",
    "SymlinkRequest",
    "TerminalSize",
    "VolumeRequest",
];

#[derive(Debug, Clone, Copy)]
enum Rule {
    /// At least one character, and at most so many.
    Text {
        pattern: &'static str,
        longest: usize,
    },
    OneOf(&'static [&'static str]),
    Within(usize, usize),
}

/// Puts the rules into the document.
pub(super) fn apply(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for parameter in operations.into_iter().flatten().filter_map(|one| one.parameters.as_mut()).flatten()
        {
            if let RefOr::T(parameter) = parameter {
                rule_parameter(parameter);
            }
        }
    }
    let Some(components) = &mut document.components else { return };
    for body in BODIES {
        let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(*body) else { continue };
        for (_, name, rule) in MEMBERS.iter().filter(|(only, ..)| only == body || *only == "*") {
            if let Some(RefOr::T(Schema::Object(member))) = schema.properties.get_mut(*name) {
                rule.put_into(member);
            }
        }
    }
}

fn rule_parameter(parameter: &mut Parameter) {
    let schema = match &mut parameter.schema {
        Some(RefOr::T(Schema::Object(schema))) => schema,
        Some(RefOr::T(Schema::Array(list))) => match &mut list.items {
            ArrayItems::RefOrSchema(item) => match &mut **item {
                RefOr::T(Schema::Object(schema)) => schema,
                _ => return,
            },
            ArrayItems::False => return,
        },
        _ => return,
    };
    tell_width(schema);
    if let Some((_, rule)) = PARAMETERS.iter().find(|(name, _)| *name == parameter.name) {
        rule.put_into(schema);
    }
}

/// Our numbers have no sign, and the formats that the library writes for them end at half of what is taken.
fn tell_width(schema: &mut Object) {
    let format = schema.format.as_ref().and_then(|format| serde_json::to_value(format).ok());
    let (format, most) = match format.as_ref().and_then(Value::as_str) {
        Some("int32") => ("uint32", u32::MAX as usize),
        Some("int64") => ("uint64", usize::MAX),
        _ => return,
    };
    schema.format = Some(SchemaFormat::Custom(format.to_owned()));
    schema.maximum = Some(most.into());
}

impl Rule {
    fn put_into(self, schema: &mut Object) {
        match self {
            Self::Text { pattern, longest } => {
                schema.pattern = Some(pattern.to_owned());
                schema.min_length = Some(1);
                schema.max_length = Some(longest);
            }
            Self::OneOf(words) => {
                let may_be_null =
                    matches!(&schema.schema_type, SchemaType::Array(types) if types.contains(&Type::Null));
                let words = words.iter().map(|word| Value::from(*word));
                schema.enum_values = Some(words.chain(may_be_null.then_some(Value::Null)).collect());
            }
            Self::Within(least, most) => {
                schema.minimum = Some(least.into());
                schema.maximum = Some(most.into());
            }
        }
    }
}
