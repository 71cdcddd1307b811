//! The rules that a value must meet to be taken, put into the document by the value's name: one word means one thing in
//! every request, and whoever reads the document should not have to try.

use serde_json::Value;
use utoipa::openapi::{
    Content, KnownFormat, OpenApi, RefOr, Required, Schema,
    path::Parameter,
    schema::{
        AdditionalProperties, Array, ArrayItems, Object, ObjectBuilder, SchemaFormat, SchemaType, Type,
    },
};

const NAME: Rule = Rule::Text { pattern: "^[A-Za-z0-9][A-Za-z0-9._-]*$", longest: 63 };
/// A name, or a digest or the beginning of one.
const SNAPSHOT: Rule = Rule::Text {
    pattern: "^(sha256:[0-9a-f]{6,64}|[0-9a-f]{64}|[A-Za-z0-9][A-Za-z0-9._-]{0,62})$",
    longest: 71,
};
const SECRET_NAME: Rule =
    Rule::Text { pattern: "^[A-Za-z_][A-Za-z0-9_]*$", longest: sandbox::MAX_SECRET_NAME_BYTES };
/// Beneath an absolute path anything goes but NUL.
const PATH: Rule = Rule::Text { pattern: "^/[^\\u0000]*$", longest: 4095 };
const SOME_TEXT: Rule = Rule::Text { pattern: "^[^\\u0000]+$", longest: 4095 };
const CODE: Rule = Rule::Matches("^[^\\u0000]*$");
/// As OCI registries have them: host, path, tag and digest.
const REFERENCE: Rule = Rule::Text {
    pattern: "^([A-Za-z0-9]+([.-][A-Za-z0-9]+)*(:[0-9]{1,5})?/)?[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$",
    longest: 255,
};
const PLATFORM: Rule = Rule::Text { pattern: "^[A-Za-z0-9]+/[A-Za-z0-9]+(/[A-Za-z0-9]+)?$", longest: 255 };
/// An hour, in milliseconds.
const GRACE: Rule = Rule::Within(0, 3_600_000);
const SOME_TIME: Rule = Rule::Within(1, usize::MAX);
/// A week, in seconds.
const LINK_TIME: Rule = Rule::Within(1, 604_800);

const GRANT_TIME: Rule = Rule::Within(1, sandbox::network::MAX_GRANT_SECONDS as usize);
const PORT: Rule = Rule::Within(1, u16::MAX as usize);
/// 0 is any free one.
const HOST_PORT: Rule = Rule::Within(0, u16::MAX as usize);
/// The pattern of addresses of version 4; those of version 6 have too many spellings for a pattern.
const IP_ADDRESS: Rule =
    Rule::Text { pattern: "^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\\.|$)){4}", longest: 45 };

/// As people write them; what each part must look like takes more than a pattern.
const NETWORK_RULES: Rule = Rule::Each("^[^\\u0000]+$");

/// The rules of parameters in paths and queries that are plain text; types of our own have their rules with them.
const PARAMETERS: &[(&str, Rule)] = &[
    ("sandbox", NAME),
    ("volume", NAME),
    ("secret", SECRET_NAME),
    ("snapshot", SNAPSHOT),
    ("since", SNAPSHOT),
    ("path", SOME_TEXT),
    ("root", SOME_TEXT),
    ("pattern", SOME_TEXT),
    (
        "label",
        Rule::Text {
            pattern: "^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}(=[^\\u0000-\\u001f\\u007f-\\u009f]*)?$",
            longest: 255,
        },
    ),
    ("package", SOME_TEXT),
    ("reference", REFERENCE),
    ("tag", REFERENCE),
    ("platform", PLATFORM),
    ("pull", Rule::OneOf(&["always", "if-missing", "never"])),
    ("network", Rule::OneOf(&["default", "none", "packages", "public", "public+private", "all"])),
    ("buildArg", Rule::Text { pattern: "^[A-Za-z_][A-Za-z0-9_]*=[^\\u0000]*$", longest: 4095 }),
    ("graceMs", GRACE),
    ("cursor", Rule::Text { pattern: "^exc-[0-9a-hjkmnp-tv-z]{13}:[0-9]{1,18}$", longest: 36 }),
    ("port", PORT),
    (
        "topics",
        Rule::Text {
            pattern: "^(sandboxes|usage|execs|calls|network|pending)(,(sandboxes|usage|execs|calls|network|pending))*$",
            longest: 255,
        },
    ),
];

/// The rules of members of request bodies, by the schema they are in; `*` stands for all of [`BODIES`].
const MEMBERS: &[(&str, &str, Rule)] = &[
    ("*", "path", SOME_TEXT),
    ("*", "from", SOME_TEXT),
    ("*", "to", SOME_TEXT),
    ("CodeRequest", "cwd", SOME_TEXT),
    ("ContextRequest", "cwd", SOME_TEXT),
    ("ExecSpec", "cwd", SOME_TEXT),
    ("SandboxSpec", "cwd", PATH),
    ("*", "rows", Rule::Within(1, u16::MAX as usize)),
    ("*", "cols", Rule::Within(1, u16::MAX as usize)),
    ("*", "signal", Rule::Within(1, 64)),
    ("*", "timeoutMs", SOME_TIME),
    ("*", "user", SOME_TEXT),
    ("*", "code", CODE),
    ("*", "platform", PLATFORM),
    ("*", "env", Rule::Map { keys: "^[^=\\u0000]+$", values: "^[^\\u0000]*$" }),
    (
        "*",
        "labels",
        Rule::Map {
            keys: "^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$",
            values: "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        },
    ),
    ("ForkSandboxRequest", "count", Rule::Within(1, engine::MAX_FORKS)),
    ("ForkSandboxRequest", "namePrefix", NAME),
    ("KeyRequest", "label", NAME),
    ("KeyRequest", "expiresInMs", SOME_TIME),
    ("DnsSpec", "queryTimeoutMs", Rule::Within(50, 10_000)),
    ("Lifetime", "ttlMs", SOME_TIME),
    ("Lifetime", "idleMs", SOME_TIME),
    ("LinkRequest", "ttlSeconds", LINK_TIME),
    ("ShareRequest", "expires", LINK_TIME),
    ("ShareRequest", "sandbox", NAME),
    ("ShareRequest", "key", NAME),
    ("ExposeRequest", "ttlSeconds", LINK_TIME),
    ("ExposeRequest", "port", PORT),
    ("ExposeRequest", "host", HOST_PORT),
    ("ExposeRequest", "address", IP_ADDRESS),
    ("PortSpec", "inside", PORT),
    ("PortSpec", "host", HOST_PORT),
    ("PortSpec", "address", IP_ADDRESS),
    ("Policy", "rules", NETWORK_RULES),
    ("NetworkSpec", "allow", NETWORK_RULES),
    ("NetworkSpec", "deny", NETWORK_RULES),
    ("NetworkRequestSpec", "rules", NETWORK_RULES),
    ("NetworkRequestSpec", "reason", Rule::Matches("\\S")),
    ("NetworkRequestSpec", "forSeconds", GRANT_TIME),
    ("NetworkGrantRequest", "forSeconds", GRANT_TIME),
    (
        "RuleSpec",
        "target",
        Rule::Text { pattern: "^[^\\u0000]+$", longest: sandbox::network::MAX_RULE_BYTES },
    ),
    ("NetworkLimitsSpec", "connections", Rule::Within(1, 65_536)),
    ("NetworkLimitsSpec", "udpFlows", Rule::Within(1, 65_536)),
    ("NetworkLimitsSpec", "connectsPerSecond", Rule::Within(1, 100_000)),
    ("NetworkLimitsSpec", "dnsPerSecond", Rule::Within(1, 10_000)),
    ("PackageRequest", "packages", Rule::Each("^[^\\u0000]+$")),
    ("PullRequest", "reference", REFERENCE),
    ("Rlimit", "resource", Rule::OneOf(&sandbox::RLIMIT_RESOURCES)),
    ("SnapshotRequest", "sandbox", NAME),
    ("SymlinkRequest", "target", SOME_TEXT),
    ("TagRequest", "target", REFERENCE),
];

/// Schemas that only requests have, or that only say what a request once asked for.
const BODIES: &[&str] = &[
    "CellSpec",
    "ChmodRequest",
    "ChownRequest",
    "CodeRequest",
    "ContextRequest",
    "CopyRequest",
    "DnsSpec",
    "ExecSpec",
    "ExposeRequest",
    "ForkRequest",
    "ForkSandboxRequest",
    "KeyRequest",
    "Lifetime",
    "Limits",
    "LinkRequest",
    "MkdirRequest",
    "NetworkGrantRequest",
    "NetworkLimitsSpec",
    "NetworkRefusal",
    "NetworkRequestSpec",
    "NetworkSpec",
    "PackageRequest",
    "PortSpec",
    "PullRequest",
    "RemoveRequest",
    "RenameRequest",
    "ResizeRequest",
    "RestoreRequest",
    "Rlimit",
    "RuleSpec",
    "SandboxSpec",
    "ShareRequest",
    "SignalRequest",
    "SnapshotRequest",
    "SymlinkRequest",
    "TagRequest",
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
    /// A pattern for text of any length.
    Matches(&'static str),
    Map {
        keys: &'static str,
        values: &'static str,
    },
    /// A pattern for the items of a list.
    Each(&'static str),
}

/// Puts the rules into the document.
pub(super) fn apply(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete]
            .into_iter()
            .flatten()
        {
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter {
                    rule_parameter(parameter);
                }
            }
            if let Some(RefOr::T(body)) = &mut operation.request_body
                && tell_bytes(&mut body.content)
            {
                // No bytes are as good as any: an empty file, an empty archive.
                body.required = Some(Required::False);
            }
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(response) = response {
                    tell_bytes(&mut response.content);
                }
            }
        }
    }
    let Some(components) = &mut document.components else { return };
    if let Some(RefOr::T(Schema::Object(image))) = components.schemas.get_mut("ImageRef") {
        REFERENCE.put_into(image);
    }
    if let Some(RefOr::T(Schema::Object(size))) = components.schemas.get_mut("ByteSize") {
        tell_width(size);
    }
    if let Some(RefOr::T(Schema::OneOf(patches))) = components.schemas.get_mut("Patch") {
        patches.items.iter_mut().for_each(close);
    }
    for body in BODIES {
        let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(*body) else { continue };
        for member in schema.properties.values_mut() {
            if let RefOr::T(Schema::Object(member)) = member {
                tell_width(member);
            }
        }
        for (_, name, rule) in MEMBERS.iter().filter(|(only, ..)| only == body || *only == "*") {
            match schema.properties.get_mut(*name) {
                Some(RefOr::T(Schema::Object(member))) => rule.put_into(member),
                Some(RefOr::T(Schema::Array(list))) => rule.put_into_items(list),
                _ => {}
            }
        }
    }
}

/// A kind of patch takes its own members and no others, which the library writes for structs only.
fn close(variant: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::Object(variant)) = variant {
        variant.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    }
}

fn rule_parameter(parameter: &mut Parameter) {
    if let Some(RefOr::T(Schema::OneOf(either))) = &mut parameter.schema {
        // A parameter is there or it is not; it cannot be null.
        let is_null =
            |one: &RefOr<Schema>| matches!(one, RefOr::T(Schema::Object(one)) if is(one, &Type::Null));
        either.items.retain(|one| !is_null(one));
        if let [only] = either.items.as_slice() {
            parameter.schema = Some(only.clone());
        }
    }
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
    tell_not_null(schema);
    tell_width(schema);
    // A moment has a form of its own, whatever its name means elsewhere.
    let is_moment = schema.format == Some(SchemaFormat::KnownFormat(KnownFormat::DateTime));
    if let Some((_, rule)) = PARAMETERS.iter().find(|(name, _)| *name == parameter.name && !is_moment) {
        rule.put_into(schema);
    }
}

/// The same where the type is plain.
fn tell_not_null(schema: &mut Object) {
    if let SchemaType::Array(types) = &mut schema.schema_type {
        types.retain(|one| *one != Type::Null);
        if let [only] = types.as_slice() {
            schema.schema_type = SchemaType::Type(only.clone());
        }
    }
}

/// Bytes are sent as they are; the library describes `Vec<u8>` as a JSON list of numbers. Whether there were any.
fn tell_bytes<'a>(contents: impl IntoIterator<Item = (&'a String, &'a mut RefOr<Content>)>) -> bool {
    let mut found = false;
    for (media_type, content) in contents {
        if let RefOr::T(content) = content
            && media_type != "application/json"
            && matches!(content.schema, Some(RefOr::T(Schema::Array(_))))
        {
            let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
            let bytes = ObjectBuilder::new().schema_type(Type::String).format(Some(binary)).build();
            content.schema = Some(RefOr::T(Schema::Object(bytes)));
            found = true;
        }
    }
    found
}

/// Our numbers have no sign, and the formats that the library writes for them end at half of what is taken.
fn tell_width(schema: &mut Object) {
    let format = schema.format.as_ref().and_then(|format| serde_json::to_value(format).ok());
    let (format, most) = match format.as_ref().and_then(Value::as_str) {
        Some("int32") => ("uint32", u32::MAX as usize),
        Some("int64") => ("uint64", usize::MAX),
        None if is(schema, &Type::Integer) => ("uint64", usize::MAX),
        _ => return,
    };
    schema.format = Some(SchemaFormat::Custom(format.to_owned()));
    schema.maximum = Some(most.into());
}

fn is(schema: &Object, wanted: &Type) -> bool {
    match &schema.schema_type {
        SchemaType::Type(one) => one == wanted,
        SchemaType::Array(several) => several.contains(wanted),
        SchemaType::AnyValue => false,
    }
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
                let may_be_null = is(schema, &Type::Null);
                let words = words.iter().map(|word| Value::from(*word));
                schema.enum_values = Some(words.chain(may_be_null.then_some(Value::Null)).collect());
            }
            Self::Within(least, most) => {
                schema.minimum = Some(least.into());
                schema.maximum = Some(most.into());
            }
            Self::Matches(pattern) => schema.pattern = Some(pattern.to_owned()),
            Self::Map { keys, values } => {
                schema.property_names = Some(Box::new(text_like(keys)));
                let values = AdditionalProperties::RefOr(RefOr::T(text_like(values)));
                schema.additional_properties = Some(Box::new(values));
            }
            Self::Each(_) => {}
        }
    }

    fn put_into_items(self, list: &mut Array) {
        if let Self::Each(pattern) = self {
            list.items = ArrayItems::RefOrSchema(Box::new(RefOr::T(text_like(pattern))));
        }
    }
}

fn text_like(pattern: &str) -> Schema {
    Schema::Object(ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build())
}
