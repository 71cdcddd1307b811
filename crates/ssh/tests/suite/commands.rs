//! Commands, shells and terminals.

use engine::Follow;
use futures_util::TryStreamExt;
use russh::{Pty, SshId, client};
use sandbox::{ExecOutcome, KeySpec, SandboxState};

use super::support::{Ran, World, finish, in_time, printed};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_output_errors_input_and_a_status() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    assert_eq!(client.run("echo hello").await, Ran::ok("hello\n"));
    let ran = client.run_with("cat; echo problem >&2; exit 7", b"from here").await;
    let expected =
        Ran { stdout: "from here".into(), stderr: "problem\n".into(), status: Some(7), signal: None };
    assert_eq!(ran, expected);
    let killed = client.run("kill -TERM $$").await;
    assert_eq!((killed.status, killed.signal.as_deref()), (None, Some("TERM")));
    let missing = client.run("no-such-program-here").await;
    assert_eq!(missing.status, Some(127), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_a_size_that_follows_its_window() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let mut channel = client.session().await;
    channel.request_pty(true, "xterm-test", 100, 30, 0, 0, &[]).await.unwrap();
    channel.request_shell(true).await.unwrap();
    channel.data(&b"stty size; echo $TERM; test -t 0 && echo a-terminal\n"[..]).await.unwrap();
    let seen = printed(&mut channel, "\na-terminal\r\n").await;
    assert!(seen.contains("30 100") && seen.contains("xterm-test"), "{seen}");
    channel.window_change(132, 43, 0, 0).await.unwrap();
    channel
        .data(&b"until [ \"$(stty size)\" = '43 132' ]; do sleep 0.02; done; echo grown\n"[..])
        .await
        .unwrap();
    printed(&mut channel, "\ngrown\r\n").await;
    channel.data(&b"exit 3\n"[..]).await.unwrap();
    assert_eq!(finish(channel).await.status, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_the_modes_that_its_client_states() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let channel = client.session().await;
    let modes = [
        (Pty::ECHO, 0),
        (Pty::ONLCR, 0),
        (Pty::IUTF8, 1),
        (Pty::IXANY, 1),
        (Pty::VERASE, 8),
        (Pty::VSUSP, 255),
        (Pty::TTY_OP_OSPEED, 38_400),
    ];
    channel.request_pty(true, "xterm", 80, 24, 0, 0, &modes).await.unwrap();
    channel.exec(true, "stty -a | tr ' ' '\n' | grep -xE -- '-?(echo|onlcr|iutf8|ixany|icanon)'; stty -a | grep -oE '\\b(erase|susp) = [^;]*'; read -r line; echo read $line").await.unwrap();
    channel.data(&b"quietly\n"[..]).await.unwrap();
    let seen = "iutf8\nixany\n-onlcr\nicanon\n-echo\nerase = ^H\nsusp = <undef>\nread quietly\n";
    let ran = finish(channel).await;
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!((sorted(&ran.stdout), ran.status), (sorted(seen), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_a_running_command() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let mut channel = client.session().await;
    channel
        .exec(true, "trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.02; done")
        .await
        .unwrap();
    printed(&mut channel, "ready").await;
    channel.signal(russh::Sig::USR1).await.unwrap();
    let ran = finish(channel).await;
    assert_eq!((ran.stdout.as_str(), ran.status), ("caught\n", Some(9)));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_variables_are_taken() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let channel = client.session().await;
    channel.set_env(true, "LC_TEST", "one two").await.unwrap();
    channel.set_env(true, "LD_PRELOAD", "/evil.so").await.unwrap();
    channel.exec(true, "echo \"$LC_TEST/$LD_PRELOAD/\"").await.unwrap();
    assert_eq!(finish(channel).await, Ran::ok("one two//\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_may_name_a_user_and_a_namespace() {
    let world = World::new().await;
    world.sandbox_in("lab", "red").await;
    let client = world.login("red/lab+65534:65534").await;
    assert_eq!(client.run("id -u; id -g").await, Ran::ok("65534\n65534\n"));
    let nobody = world.login("red/lab+no-such-user").await;
    let ran = nobody.run("true").await;
    assert!(ran.status == Some(125) && ran.stderr.contains("no-such-user"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sandbox_is_started() {
    let world = World::new().await;
    let which = world.sandbox("lab").await;
    world.engine.stop_sandbox(&world.owner, &which, None).await.unwrap();
    let client = world.login("lab").await;
    assert_eq!(client.run("echo up").await, Ran::ok("up\n"));
    let view = world.engine.sandbox(&world.owner, &which).await.unwrap();
    assert_eq!(view.state, SandboxState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_for_new_sandboxes_makes_one_that_goes_with_the_login() {
    let settings = ssh::Settings { new_name: Some("new".to_owned()), ..ssh::Settings::default() };
    let world = World::with(settings).await;
    let client = world.login("new").await;
    assert_eq!(client.run("echo one > /tmp/x; cat /tmp/x").await, Ran::ok("one\n"));
    assert_eq!(client.run("cat /tmp/x").await, Ran::ok("one\n"), "the same sandbox for the whole login");
    let all = world.engine.sandboxes(&world.owner, &Default::default()).await.unwrap();
    assert_eq!(all.len(), 1);
    drop(client);
    in_time(async {
        while !world.engine.sandboxes(&world.owner, &Default::default()).await.unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_is_in_the_ledger_and_every_login_in_the_audit() {
    let world = World::new().await;
    let which = world.sandbox("lab").await;
    let client = world.login("lab").await;
    client.run_with("cat; echo kept", b"in").await;
    let execs = world.engine.execs(&world.owner, &which).await.unwrap();
    assert_eq!(execs.len(), 1);
    assert_eq!(execs[0].outcome, Some(ExecOutcome::exited(0)));
    let entries = world.engine.exec_entries(&world.owner, &which, &execs[0].id, 1, Follow::No).await.unwrap();
    let entries: Vec<_> = entries.try_collect().await.unwrap();
    assert!(
        entries
            .iter()
            .any(|entry| matches!(&entry.body, engine::EntryBody::Stdin(bytes) if &bytes[..] == b"in"))
    );
    let calls = world.engine.calls(&world.owner, Default::default()).await.unwrap();
    let mut actions: Vec<_> = calls.iter().map(|call| call.action.clone()).collect();
    actions.sort();
    assert_eq!(actions, [format!("exec {}", execs[0].id), "login".to_owned()]);
    assert!(
        calls
            .iter()
            .all(|call| call.who.as_deref() == Some("key login-lab") && call.frontend.as_str() == "ssh")
    );
    // The client program's name for itself.
    let config = client::Config {
        client_id: SshId::Standard("SSH-2.0-tester_1.0 of ours".into()),
        ..Default::default()
    };
    let mut named = world.connect_with(config).await;
    let key = world.key("named", KeySpec::default()).await;
    assert!(named.password("lab", &key.secret).await);
    named.run("true").await;
    let calls = world.engine.calls(&world.owner, Default::default()).await.unwrap();
    let clients: Vec<_> = calls
        .iter()
        .filter(|call| call.who.as_deref() == Some("key named"))
        .map(|call| call.client.as_deref())
        .collect();
    assert_eq!(clients, [Some("tester_1.0 of ours"); 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_whose_client_is_gone_hangs_up() {
    let world = World::new().await;
    let which = world.sandbox("lab").await;
    let client = world.login("lab").await;
    let mut channel = client.session().await;
    channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
    channel.exec(true, "echo ready; sleep 1000").await.unwrap();
    printed(&mut channel, "ready").await;
    drop((channel, client));
    let execs = world.engine.execs(&world.owner, &which).await.unwrap();
    let done = world.engine.wait_exec(&world.owner, &which, &execs[0].id, Some(super::support::PATIENCE));
    assert_eq!(done.await.unwrap().outcome, Some(ExecOutcome::Signaled { signal: 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_between_a_fast_command_and_a_slow_client() {
    const MIB: usize = 40;
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    // More than all buffers on the way, in both directions at once: input, output, and neither waits for the other.
    let channel = client.session().await;
    channel.exec(true, "cat").await.unwrap();
    let (mut reader, writer) = channel.split();
    let sent: Vec<u8> = (0..MIB * 1024 * 1024).map(|n| (n / 997) as u8).collect();
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        writer.data(&sent[..]).await.unwrap();
        writer.eof().await.unwrap();
    });
    let mut received = Vec::new();
    while let Some(message) = in_time(reader.wait()).await {
        if let russh::ChannelMsg::Data { data } = message {
            received.extend_from_slice(&data);
        }
    }
    sending.await.unwrap();
    assert!(received == expected, "{} of {} bytes", received.len(), expected.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_prints_much_more_than_it_reads_does_not_hang() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let channel = client.session().await;
    // Each line of input gives a hundred lines of output, and the input is larger than all buffers.
    channel.exec(true, "while read -r line; do for i in 1 2 3 4 5 6 7 8; do echo $line$line$line$line; done; done; echo done").await.unwrap();
    let (mut reader, writer) = channel.split();
    let line = format!("{}\n", "x".repeat(8000));
    let sending = tokio::spawn(async move {
        for _ in 0..1000 {
            writer.data(line.as_bytes()).await.unwrap();
        }
        writer.eof().await.unwrap();
    });
    let (mut n_bytes, mut last) = (0, Vec::new());
    while let Some(message) = in_time(reader.wait()).await {
        if let russh::ChannelMsg::Data { data } = message {
            n_bytes += data.len();
            last = data[data.len().saturating_sub(5)..].to_vec();
        }
    }
    sending.await.unwrap();
    assert_eq!((n_bytes, last), (1000 * 8 * 32_001 + 5, b"done\n".to_vec()));
}
