//! Mounts as models write them elsewhere: `"name:/path"`, `{"/path": "name"}`, and objects without a kind. A mount here
//! is an object that says its kind.

use serde_json::{Value, json};

use super::schema::JsonObject;

/// The parameters that are lists of mounts, where a tool has them.
const LISTS: [&str; 2] = ["volumes", "mounts"];

/// Rewrites what can only be meant in one way. The rest stays as it is and is refused.
pub(super) fn rewrite(schema: &JsonObject, arguments: &mut JsonObject) {
    for list in LISTS {
        let takes_mounts = schema
            .get("properties")
            .and_then(|properties| properties[list].pointer("/items/properties/guestPath"))
            .is_some();
        if let Some(given) = arguments.get_mut(list).filter(|_| takes_mounts) {
            rewrite_list(given);
        }
    }
}

fn rewrite_list(given: &mut Value) {
    if let Value::Object(map) = given
        && !map.is_empty()
        && let Some(mounts) =
            map.iter().map(|(one, other)| pair(one, other.as_str()?)).collect::<Option<Vec<_>>>()
    {
        *given = Value::Array(mounts);
    }
    for mount in given.as_array_mut().into_iter().flatten() {
        if let Some(object) = mount.as_str().and_then(written) {
            *mount = object;
        }
        if let Value::Object(object) = mount {
            add_kind(object);
        }
    }
}

/// `name:/path` or `/host:/path`, with `:ro` behind it where it is only to be read.
fn written(text: &str) -> Option<Value> {
    let (text, readonly) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text.strip_suffix(":rw").unwrap_or(text), false),
    };
    let (source, path) = text.split_once(':')?;
    let mut mount = path.starts_with('/').then(|| mounted(source, path))?;
    if readonly {
        mount["readonly"] = json!(true);
    }
    Some(mount)
}

/// Reads one entry of a map. If only one of the two is a path, it is the path inside.
fn pair(one: &str, other: &str) -> Option<Value> {
    match (one.starts_with('/'), other.starts_with('/')) {
        (_, true) => Some(mounted(one, other)),
        (true, false) => Some(mounted(other, one)),
        (false, false) => None,
    }
}

fn mounted(source: &str, path: &str) -> Value {
    match source.starts_with('/') {
        true => json!({ "kind": "bind", "hostPath": source, "guestPath": path }),
        false => json!({ "kind": "named", "name": source, "guestPath": path }),
    }
}

/// Adds the kind, if the other members leave no doubt about it.
fn add_kind(mount: &mut JsonObject) {
    if mount.contains_key("kind") {
        return;
    }
    let source = mount.get("source").and_then(Value::as_str);
    let kind = match (mount.contains_key("name"), mount.contains_key("hostPath"), source) {
        (true, false, None) => "named",
        (false, true, None) => "bind",
        (false, false, Some(source)) if source.starts_with('/') => "bind",
        (false, false, Some(_)) => "named",
        _ => return,
    };
    mount.insert("kind".to_owned(), json!(kind));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: Value, expected: Value) {
        let mut given = given;
        rewrite_list(&mut given);
        assert_eq!(given, expected);
    }

    #[test]
    fn mounts_of_other_systems_are_read() {
        let named = json!([{ "kind": "named", "name": "shared", "guestPath": "/data" }]);
        check(json!(["shared:/data"]), named.clone());
        check(json!({ "/data": "shared" }), named.clone());
        check(json!({ "shared": "/data" }), named.clone());
        check(json!([{ "name": "shared", "guestPath": "/data" }]), named);
        let bind = json!([{ "kind": "bind", "hostPath": "/srv", "guestPath": "/data", "readonly": true }]);
        check(json!(["/srv:/data:ro"]), bind.clone());
        check(json!([{ "hostPath": "/srv", "guestPath": "/data", "readonly": true }]), bind);
    }

    #[test]
    fn what_can_be_meant_otherwise_is_left_to_be_refused() {
        for given in [
            json!(["shared"]),
            json!({ "shared": "data" }),
            json!({ "/data": 7 }),
            json!([{ "guestPath": "/data" }]),
            json!([{ "guestPath": "/data", "name": "a", "hostPath": "/b" }]),
            json!(7),
        ] {
            check(given.clone(), given);
        }
    }
}
