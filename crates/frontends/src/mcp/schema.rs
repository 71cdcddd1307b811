//! JSON Schemas of what tools take and answer, from their types; tidied, because a model pays for every byte.

use std::{any::type_name, borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use super::{Toolset, Toolsets};

pub(crate) type JsonObject = Map<String, Value>;

/// A nested schema longer than this is left out of the short form.
const MAX_NESTED_BYTES: usize = 180;
/// Marks parameters that only the long form shows: `#[schemars(extend("x-full-only" = true))]`. With the name of a
/// toolset instead of `true`, the short form has them too while that toolset is shown.
const FULL_ONLY: &str = "x-full-only";
/// Marks parameters that are taken and never listed, because another says the same:
/// `#[schemars(extend("x-unlisted" = true))]`.
const UNLISTED: &str = "x-unlisted";
/// Marks parameters that are listed as required although an older name does as well:
/// `#[schemars(extend("x-required" = true))]`.
const REQUIRED: &str = "x-required";

/// Returns the schema of a tool's arguments: an object that refuses names it does not know. Parameters for the long
/// form only are marked.
pub(crate) fn input<A: JsonSchema>() -> JsonObject {
    closed(of::<A>())
}

fn closed(mut schema: Value) -> JsonObject {
    close(&mut schema);
    object(schema)
}

/// A field of an answer that is always there, and `null` while there is nothing to say. Written out as one of two
/// types, which [`tidy`] leaves alone: a client that checks answers must know of the `null`.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
pub(crate) struct Nullable<T>(pub(crate) Option<T>);

impl<T: JsonSchema> JsonSchema for Nullable<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Nullable_{}", T::schema_name()))
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [generator.subschema_for::<T>(), { "type": "null" }] })
    }
}

/// A type of the `sandbox` crate, described as the REST document does: `#[schemars(with = "Native<OnExpiry>")]`.
pub(crate) struct Native<T>(PhantomData<T>);

impl<T: PartialSchema> JsonSchema for Native<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed(type_name::<T>())
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        let described = serde_json::to_value(T::schema()).unwrap_or_default();
        let mut schema = Schema::try_from(described).unwrap_or_default();
        // A model pays for every byte, and the names say it.
        schema.remove("description");
        schema
    }
}

/// Returns the schema that arguments are held against: all there is, without marks.
pub(crate) fn checked(mut schema: JsonObject) -> JsonObject {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            for mark in [FULL_ONLY, REQUIRED, UNLISTED] {
                property.remove(mark);
            }
            *property = checked(std::mem::take(property));
        }
    }
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        *items = checked(std::mem::take(items));
    }
    schema
}

/// The long form of what is listed.
pub(crate) fn full(schema: &JsonObject) -> JsonObject {
    let mut schema = with_required(schema);
    drop_marked(&mut schema, UNLISTED);
    checked(schema)
}

fn drop_marked(schema: &mut JsonObject, mark: &str) {
    let mut is_open = false;
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let n_all = properties.len();
        properties.retain(|_, property| property.get(mark).is_none());
        is_open = mark == FULL_ONLY && properties.len() < n_all;
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            drop_marked(property, mark);
        }
    }
    // The schema leaves some out, so it must not say that there are no others.
    if is_open {
        schema.remove("additionalProperties");
    }
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        drop_marked(items, mark);
    }
}

/// Lists what is marked as required.
fn with_required(schema: &JsonObject) -> JsonObject {
    let mut schema = schema.clone();
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_marked = |property: &Value| property.get(REQUIRED).is_some();
    let marked = properties.into_iter().flatten().filter(|(_, property)| is_marked(property));
    let marked: Vec<Value> = marked.map(|(name, _)| Value::from(name.as_str())).collect();
    if !marked.is_empty()
        && let Some(required) = schema.entry("required").or_insert_with(|| json!([])).as_array_mut()
    {
        required.extend(marked);
    }
    schema
}

/// The short form, without large nested parts and without what is marked, except for parameters that belong to a
/// toolset in `sets`. It does not say that there is nothing else; what is unknown is refused all the same.
pub(crate) fn brief(schema: &JsonObject, sets: &Toolsets) -> JsonObject {
    let mut schema = with_required(schema);
    schema.remove("additionalProperties");
    let widened = widen(&mut schema, sets);
    drop_marked(&mut schema, FULL_ONLY);
    drop_marked(&mut schema, UNLISTED);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            property.as_object_mut().and_then(|property| property.remove(REQUIRED));
            if !widened.contains(name) {
                shorten(property);
            }
        }
    }
    schema
}

/// Removes the mark from the parameters of toolsets that are shown, and returns their names.
fn widen(schema: &mut JsonObject, sets: &Toolsets) -> Vec<String> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let mut widened = Vec::new();
    for (name, property) in properties.into_iter().flatten() {
        let set = property.get(FULL_ONLY).and_then(Value::as_str).and_then(|set| set.parse::<Toolset>().ok());
        if set.is_some_and(|set| sets.contains(set)) {
            property.as_object_mut().and_then(|property| property.remove(FULL_ONLY));
            widened.push(name.clone());
        }
    }
    widened
}

fn shorten(property: &mut Value) {
    let is_nested = property.get("properties").is_some()
        || property.get("oneOf").is_some()
        || property.get("anyOf").is_some()
        || property.pointer("/items/properties").is_some();
    if !is_nested || property.to_string().len() <= MAX_NESTED_BYTES {
        return;
    }
    // Some clients refuse a list that says nothing of what is in it.
    let mut short = match property.get("items") {
        Some(_) => json!({ "type": "array", "items": { "type": "object" } }),
        None => json!({ "type": "object" }),
    };
    if let Some(description) = property.get("description") {
        short["description"] = description.clone();
    }
    *property = short;
}

/// The bare schema of a type. There are hundreds of them: what is compiled for each is one call.
pub(crate) fn of<T: JsonSchema>() -> Value {
    bare(T::json_schema)
}

fn bare(schema_of: fn(&mut SchemaGenerator) -> Schema) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut schema = schema_of(&mut generator);
    // A schema that takes everything is `true`, which some clients do not read.
    schema.ensure_object();
    debug_assert!(generator.definitions().is_empty(), "a type that contains itself has no bare schema");
    let mut schema = schema.to_value();
    tidy(&mut schema);
    if let Value::Object(root) = &mut schema {
        // Written for who reads the code; a tool has a description of its own.
        root.remove("description");
    }
    schema
}

fn object(schema: Value) -> JsonObject {
    match schema {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

/// Takes out what says nothing to a reader: titles, widths of integers, "or null" for what may be absent.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("title");
            object.remove("$schema");
            if object.get("format").and_then(Value::as_str).is_some_and(is_width) {
                object.remove("format");
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            drop_null_type(object);
            drop_null_branch(object);
            let is_map_of_schemas = |key: &str| key == "properties" || key == "$defs";
            for (key, value) in object.iter_mut() {
                match value {
                    Value::Object(named) if is_map_of_schemas(key) => named.values_mut().for_each(tidy),
                    Value::Object(_) | Value::Array(_) if key != "enum" && key != "default" => tidy(value),
                    _ => {}
                }
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn is_width(format: &str) -> bool {
    format.starts_with("uint") || format.starts_with("int") || matches!(format, "double" | "float")
}

fn drop_null_type(object: &mut JsonObject) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

/// `anyOf: [X, null]` is X.
fn drop_null_branch(object: &mut JsonObject) {
    let Some(Value::Array(branches)) = object.get_mut("anyOf") else { return };
    branches.retain(|branch| branch.get("type").is_none_or(|kind| kind != "null"));
    if let [Value::Object(only)] = branches.as_slice() {
        let only = only.clone();
        object.remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

/// Writes down that objects with named properties take no others.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                match value {
                    Value::Object(named) if key == "properties" => named.values_mut().for_each(close),
                    Value::Object(_) | Value::Array(_) if key != "enum" => close(value),
                    _ => {}
                }
            }
            if object.get("type").is_some_and(|kind| kind == "object")
                && !object.contains_key("additionalProperties")
            {
                object.entry("properties").or_insert_with(|| json!({}));
                object.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(close),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// Not for clients.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        /// What it is called.
        name: String,
        max_bytes: Option<u32>,
        inner: Option<Inner>,
        env: Option<BTreeMap<String, String>>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        list: Vec<String>,
    }

    #[test]
    fn an_input_schema_says_what_is_needed_and_no_more() {
        let expected = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "What it is called." },
                "maxBytes": { "type": "integer", "minimum": 0 },
                "inner": {
                    "type": "object",
                    "properties": { "list": { "type": "array", "items": { "type": "string" } } },
                    "required": ["list"],
                    "additionalProperties": false,
                },
                "env": { "type": "object", "additionalProperties": { "type": "string" } },
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        assert_eq!(Value::Object(input::<Sample>()), expected);
    }

    #[derive(Serialize, JsonSchema)]
    struct Answered {
        always: Nullable<String>,
    }

    #[test]
    fn what_may_be_null_in_an_answer_says_so_and_must_be_there() {
        let expected = json!({
            "type": "object",
            "properties": { "always": { "oneOf": [{ "type": "string" }, { "type": "null" }] } },
            "required": ["always"],
        });
        assert_eq!(of::<Answered>(), expected);
        assert_eq!(json!(Answered { always: Nullable(None) }), json!({ "always": null }));
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Large {
        /// Much.
        nested: Option<Vec<Nested>>,
        #[schemars(extend("x-full-only" = true))]
        rare: Option<String>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Nested {
        /// What is said at such length that it is better looked up than listed with every tool, every time.
        one: String,
        two: Option<BTreeMap<String, String>>,
    }

    #[test]
    fn the_short_form_leaves_out_what_is_large_or_rare_and_the_long_form_nothing() {
        let marked = input::<Large>();
        let expected = json!({
            "type": "object",
            "properties": {
                "nested": { "type": "array", "items": { "type": "object" }, "description": "Much." },
            },
        });
        assert_eq!(Value::Object(brief(&marked, &Toolsets::default())), expected);
        let full = Value::Object(full(&marked));
        assert_eq!(full["properties"]["rare"], json!({ "type": "string" }));
        assert_eq!(full["additionalProperties"], false);
        assert!(full.pointer("/properties/nested/items/properties/two").is_some(), "{full}");
    }
}
