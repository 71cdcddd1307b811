//! Names of arguments, names of tools and ways to write values that models bring from other systems, and the answers to
//! them.

use serde_json::json;

use crate::mcp::testing::Client;

#[tokio::test]
async fn words_of_other_systems_do_the_same_here() {
    let client = Client::new().await;
    client.data("sandbox_create", json!({ "sandbox_name": "box" })).await;
    let wrote = json!({ "sandbox_id": "box", "file_path": "/root/note", "text": "one two" });
    client.data("sandbox_fs_write", wrote).await;
    let edit = json!({ "sandbox": "box", "file_path": "/root/note", "old_string": "two", "new_string": "2" });
    client.data("sandbox_fs_edit", edit).await;
    let shell = json!({ "id": "box", "cmd": "cat \"$PLACE\"", "env": "{\"PLACE\": \"/root/note\"}", "timeout_ms": "60000" });
    assert_eq!(client.data("sandbox_shell", shell).await["stdout"], "one 2");
    let exec = json!({ "sandboxName": "box", "cmd": "printf", "args": "[\"%s-\", \"a\", \"b\"]" });
    assert_eq!(client.data("sandbox_exec", exec).await["stdout"], "a-b-");
}

#[tokio::test]
async fn two_names_of_one_argument_must_agree() {
    let client = Client::new().await;
    client.data("sandbox_create", json!({ "name": "box" })).await;
    let both = |other: &str| json!({ "name": "box", "sandbox_id": other, "command": "true" });
    client.data("sandbox_exec", both("box")).await;
    let error = client.error("sandbox_exec", both("other"), "invalid_request").await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("sandbox_id") && message.contains("name"), "{error:#}");
}

#[tokio::test]
async fn a_tool_of_another_system_is_answered_with_the_call_that_does_it() {
    let client = Client::new().await;
    client.data("sandbox_create", json!({ "name": "box" })).await;
    for (tool, arguments, right) in [
        ("bash", json!({ "command": "printf hello" }), "sandbox_shell"),
        ("command_run", json!({ "sandbox_id": "box", "command": "printf hello" }), "sandbox_shell"),
        ("container.exec", json!({ "cmd": ["printf", "hello"] }), "sandbox_exec"),
    ] {
        let error = client.error(tool, arguments, "not_found").await;
        assert!(error["hint"].as_str().unwrap().starts_with(&format!("Call {right} with ")), "{error:#}");
        let call = &error["details"]["call"];
        assert_eq!(call["tool"], right, "{error:#}");
        // The call is right but for a sandbox that nobody named.
        let mut arguments = call["arguments"].clone();
        if arguments["name"] == "<sandbox>" {
            arguments["name"] = json!("box");
        }
        assert_eq!(client.data(right, arguments).await["stdout"], "hello", "{tool}");
    }
    let error = client.error("sandbox_read_file", json!({ "path": "/f" }), "not_found").await;
    assert_eq!(error["details"]["call"]["tool"], "sandbox_fs_read", "{error:#}");
    let error = client.error("sandbox_remember", json!({}), "not_found").await;
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("toolset_list") && !hint.contains("Did you mean"), "{hint}");
}
