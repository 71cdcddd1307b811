//! Stories of the tools for SSH and SFTP.

use serde_json::{Value, json};

use crate::mcp::testing::Client;

async fn client() -> Client {
    let client = Client::new().await;
    client.data("sandbox_create", json!({ "name": "web" })).await;
    client
}

fn web(more: Value) -> Value {
    let mut arguments = json!({ "name": "web" });
    if let (Value::Object(arguments), Value::Object(more)) = (&mut arguments, more) {
        arguments.extend(more);
    }
    arguments
}

#[tokio::test]
async fn a_command_line_runs_as_a_login_would_run_it() {
    let client = client().await;
    let ran = client
        .data("sandbox_ssh_exec", web(json!({ "command": "echo $((6 * 7)); echo no >&2; exit 3" })))
        .await;
    assert_eq!(ran, json!({ "status": 3, "success": false, "stdout": "42\n", "stderr": "no\n" }));
    let ran =
        client.data("sandbox_ssh_exec", web(json!({ "command": "id -u", "user": "65534:65534" }))).await;
    assert_eq!(ran["stdout"], "65534\n");
    let tty = json!({ "command": "test -t 1 && echo $TERM", "tty": true, "term": "vt220" });
    assert_eq!(client.data("sandbox_ssh_exec", web(tty)).await["stdout"], "vt220\r\n");
    client.error("sandbox_ssh_exec", json!({ "name": "nil", "command": "true" }), "not_found").await;
}

#[tokio::test]
async fn files_are_read_written_moved_and_removed_as_one_user() {
    let client = client().await;
    let written = client.data("sandbox_sftp_write", web(json!({ "path": "/tmp/a", "content": "one" }))).await;
    assert_eq!(written, json!({ "path": "/tmp/a", "encoding": "utf8", "written": 3 }));
    let read = client.data("sandbox_sftp_read", web(json!({ "path": "/tmp/a", "encoding": "base64" }))).await;
    assert_eq!(read, json!({ "path": "/tmp/a", "encoding": "base64", "content": "b25l" }));
    let cut = client.data("sandbox_sftp_read", web(json!({ "path": "/tmp/a", "maxBytes": 2 }))).await;
    assert_eq!(cut["content"], "on");
    for _ in 0..2 {
        let made = client.data("sandbox_sftp_mkdir", web(json!({ "path": "/tmp/d" }))).await;
        assert_eq!(made, json!({ "path": "/tmp/d", "created": true }));
    }
    client.error("sandbox_sftp_mkdir", web(json!({ "path": "/none/d" })), "not_found").await;
    let moved = client.data("sandbox_sftp_rename", web(json!({ "from": "/tmp/a", "to": "/tmp/d/b" }))).await;
    assert_eq!(moved, json!({ "from": "/tmp/a", "to": "/tmp/d/b", "renamed": true }));
    let linked =
        client.data("sandbox_sftp_symlink", web(json!({ "target": "d/b", "linkPath": "/tmp/l" }))).await;
    assert_eq!(linked, json!({ "target": "d/b", "linkPath": "/tmp/l", "created": true }));
    let target = client.data("sandbox_sftp_readlink", web(json!({ "path": "/tmp/l" }))).await;
    assert_eq!(target, json!({ "path": "/tmp/l", "target": "d/b" }));
    client.error("sandbox_sftp_readlink", web(json!({ "path": "/tmp/d" })), "wrong_state").await;
    let real = client.data("sandbox_sftp_realpath", web(json!({ "path": "/tmp/../tmp/l" }))).await;
    assert_eq!(real["realPath"], "/tmp/d/b");
    client
        .error("sandbox_sftp_remove", web(json!({ "path": "/tmp/d", "kind": "file" })), "wrong_state")
        .await;
    client.error("sandbox_sftp_remove", web(json!({ "path": "/tmp/d", "kind": "dir" })), "wrong_state").await;
    for (path, kind) in [("/tmp/l", "file"), ("/tmp/d/b", "file"), ("/tmp/d", "dir")] {
        let removed = client.data("sandbox_sftp_remove", web(json!({ "path": path, "kind": kind }))).await;
        assert_eq!(removed, json!({ "path": path, "removed": true }));
    }
    client.error("sandbox_sftp_read", web(json!({ "path": "/tmp/l" })), "not_found").await;
    let shadow = json!({ "path": "/etc/shadow", "user": "65534:65534" });
    client
        .data("sandbox_ssh_exec", web(json!({ "command": "echo x > /etc/shadow; chmod 600 /etc/shadow" })))
        .await;
    client.error("sandbox_sftp_read", web(shadow), "denied").await;
}
