//! `sandbox_fs_link`: a file for a browser.

use std::time::Duration;

use engine::{LinkTarget, MAX_LINK_TTL};
use sandbox::{ErrorKind, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::explained;
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult};

const MAX_TTL_SECONDS: u64 = MAX_LINK_TTL.as_secs();

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        "sandbox_fs_link", "Link to a file", FOLLOWS, link:
            "Create a signed link to a file in a sandbox, which a browser can open without a key until it expires.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LinkArguments {
    name: String,
    path: String,
    /// Default 3600
    #[schemars(range(min = 1, max = MAX_TTL_SECONDS))]
    ttl_seconds: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Link {
    url: String,
    expires_at: String,
}

async fn link(call: Call, arguments: LinkArguments) -> ToolResult<Link> {
    let LinkArguments { name, path, ttl_seconds } = arguments;
    let which = call.sandbox(&name)?;
    let entry = call.engine().stat(&call.who, &which, &path, true).await.map_err(explained)?;
    if entry.kind != FileKind::File {
        return Err(Failure::new(ErrorKind::WrongState, format!("{path} is not a file"))
            .with_hint("Call sandbox_fs_list to see which files exist."));
    }
    let sandbox = call.engine().sandbox(&call.who, &which).await?.id;
    let ttl = ttl_seconds.map(Duration::from_secs);
    let (url, expires_at) =
        call.links().sign(&sandbox, &LinkTarget::File { path }, ttl).map_err(|error| {
            Failure::from(error).or_hint(
                ErrorKind::WrongState,
                "This daemon has no address for browsers. Call sandbox_fs_read for the content.",
            )
        })?;
    Ok(Answer::new(Link { url, expires_at: expires_at.to_string() }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::mcp::{
        call::Call,
        testing::{Client, ask},
    };

    /// The same client, by HTTP.
    fn by_http(client: &Client) -> Call {
        Call { base: Some("http://localhost:5555".parse().unwrap()), ..client.call.clone() }
    }

    async fn data(call: &Call, tool: &str, arguments: Value) -> Value {
        let envelope = ask(call.clone(), tool, arguments).await;
        assert_eq!(envelope["ok"], true, "{tool}: {envelope:#}");
        envelope["data"].clone()
    }

    #[tokio::test]
    async fn a_file_gets_a_link_where_a_browser_can_reach_us() {
        let client = Client::new().await;
        client.data("sandbox_create", json!({ "name": "web" })).await;
        client.data("sandbox_fs_write", json!({ "name": "web", "path": "/a b", "content": "x" })).await;
        let asked = json!({ "name": "web", "path": "/a b", "ttlSeconds": 5 });
        let link = data(&by_http(&client), "sandbox_fs_link", asked.clone()).await;
        let url = link["url"].as_str().unwrap();
        assert!(url.starts_with("http://localhost:5555/v1/links/") && url.ends_with("/a%20b"), "{url}");
        assert!(link["expiresAt"].is_string());
        let error = client.error("sandbox_fs_link", asked, "wrong_state").await;
        assert!(error["hint"].as_str().unwrap().contains("sandbox_fs_read"), "{error}");
        for (path, code) in [
            ("/", "wrong_state"),
            ("/nothing", "not_found"),
            ("relative", "not_found"),
            ("", "invalid_request"),
        ] {
            client.error("sandbox_fs_link", json!({ "name": "web", "path": path }), code).await;
        }
    }

    #[tokio::test]
    async fn commands_tell_which_files_they_made_and_where_to_get_them() {
        let client = Client::new().await;
        client.data("sandbox_create", json!({ "name": "web" })).await;
        let shell = |script: &str| json!({ "name": "web", "command": script, "cwd": "/tmp" });
        let made = data(&by_http(&client), "sandbox_shell", shell("printf hello > a.csv")).await;
        let file = &made["files"][0];
        assert!(file["url"].as_str().unwrap().ends_with("/a.csv"), "{file}");
        let mut file = file.clone();
        file.as_object_mut().unwrap().remove("url");
        let uri = "warren://sandboxes/web/files/tmp/a.csv";
        let told = json!({ "path": "/tmp/a.csv", "size": 5, "mimeType": "text/csv", "change": "created", "uri": uri });
        assert_eq!(file, told);
        // On stdio there is no browser to reach us, and the resource is enough.
        let again = client.data("sandbox_shell", shell("printf x > a.csv")).await;
        assert_eq!((&again["files"][0]["change"], again["files"][0].get("url")), (&json!("modified"), None));
        let nothing = client.data("sandbox_exec", json!({ "name": "web", "command": "true" })).await;
        assert_eq!(nothing.get("files"), None);
        let untracked =
            json!({ "name": "web", "command": "printf x > b", "cwd": "/tmp", "trackFiles": false });
        assert_eq!(client.data("sandbox_shell", untracked).await.get("files"), None);
        // Also of a command that failed.
        let failing = json!({
            "name": "web", "command": "printf x > c; exit 3", "cwd": "/tmp", "treatNonZeroAsError": true
        });
        let error = client.error("sandbox_shell", failing, "exec_failed").await;
        assert_eq!(error["details"]["files"][0]["path"], "/tmp/c", "{error}");
    }

    #[tokio::test]
    async fn runs_and_sessions_tell_of_files_too() {
        let client = Client::new().await;
        let run = |keep: bool| json!({ "command": "printf x > made", "keep": keep });
        assert_eq!(client.data("sandbox_run", run(false)).await.get("files"), None);
        let kept = client.data("sandbox_run", run(true)).await;
        let path = kept["files"][0]["path"].as_str().unwrap();
        assert!(path.ends_with("/made"), "{kept}");
        let uri = kept["files"][0]["uri"].as_str().unwrap();
        assert!(uri.starts_with(&format!("warren://sandboxes/{}/files/", kept["name"].as_str().unwrap())));

        let start = json!({
            "name": kept["name"], "command": "printf y > in-session; echo done", "shell": true, "closeStdin": true
        });
        let session = client.data("sandbox_exec_start", start).await["execSessionId"].clone();
        let mut cursor = json!(0);
        let files = loop {
            let poll = json!({ "execSessionId": session, "cursor": cursor, "limit": 1, "waitMs": 20_000 });
            let polled = client.data("sandbox_exec_poll", poll).await;
            cursor = polled["nextCursor"].clone();
            if polled["done"] == true {
                break polled["files"].clone();
            }
            assert_eq!(polled.get("files"), None, "told with the end: {polled}");
        };
        assert!(files[0]["path"].as_str().unwrap().ends_with("/in-session"), "{files}");
    }
}
