//! Access: who gets in, as whom, and until when.

use std::time::{Duration, SystemTime};

use russh::keys::{
    PrivateKey,
    ssh_key::{self, certificate::Builder, certificate::CertType},
};
use sandbox::{ErrorKind, KeySpec, SandboxState};
use ssh::Settings;

use super::support::{Client, Ran, World, finish, in_time, private_key, public_line};

#[tokio::test(flavor = "multi_thread")]
async fn bound_public_keys_and_the_daemons_keys_log_in_and_nothing_else() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let (key, private) = world.ssh_key("ana", KeySpec::default()).await;
    let mut client = world.connect().await;
    assert!(!client.public_key("lab", &private_key("stranger")).await);
    assert!(!client.password("lab", "wrn_nonsense").await);
    assert!(!client.password("lab", "").await);
    assert!(client.public_key("lab", &private).await);
    assert_eq!(client.run("echo in").await, Ran::ok("in\n"));
    let mut client = world.connect().await;
    assert!(client.password("lab", &key.secret).await);
    let calls = world.engine.calls(&world.owner, Default::default()).await.unwrap();
    assert!(calls.iter().all(|call| call.error.is_none()), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_of_another_namespace_is_like_one_that_does_not_exist() {
    let world = World::new().await;
    world.sandbox_in("lab", "blue").await;
    let red = KeySpec { namespace: Some("red".parse().unwrap()), ..KeySpec::default() };
    let (_, private) = world.ssh_key("ana", red).await;
    let mut answers = Vec::new();
    for name in ["lab", "none", "blue/lab", "blue/none", "red/none", "../lab", "blue/../lab"] {
        let mut client = world.connect().await;
        assert!(client.public_key(name, &private).await, "logging in says nothing about sandboxes");
        let ran = client.run("true").await;
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(255), ""), "{name}: {ran:?}");
        let files = client.session().await;
        files.request_subsystem(true, "sftp").await.unwrap();
        let files = finish(files).await;
        assert_eq!((files.status, files.stdout.as_str()), (Some(255), ""), "{name}: {files:?}");
        let forwards = refused_forwards(&client).await;
        answers.push(format!("{} {} {forwards:?}", ran.stderr, files.stderr).replace("lab", "none"));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[2], answers[3]);
}

/// The answers to a forward to a port, to a socket and from a port, all of which are refused.
async fn refused_forwards(client: &Client) -> [String; 3] {
    let port = in_time(client.handle.channel_open_direct_tcpip("localhost", 80, "localhost", 1)).await;
    let socket = in_time(client.handle.channel_open_direct_streamlocal("/tmp/socket")).await;
    let listener = in_time(client.handle.tcpip_forward("localhost", 0)).await;
    [port.unwrap_err(), socket.unwrap_err(), listener.unwrap_err()].map(|error| format!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_key_reads_files_and_runs_nothing() {
    let world = World::new().await;
    let which = world.sandbox("lab").await;
    let (_, private) = world.ssh_key("eye", KeySpec { read_only: true, ..KeySpec::default() }).await;
    let mut client = world.connect().await;
    assert!(client.public_key("lab", &private).await);
    let ran = client.run("touch /tmp/x").await;
    assert!(ran.status == Some(255) && ran.stderr.contains("read-only"), "{ran:?}");
    let channel = client.session().await;
    channel.request_subsystem(true, "sftp").await.unwrap();
    let sftp = in_time(russh_sftp::client::SftpSession::new(channel.into_stream())).await.unwrap();
    assert!(!sftp.read("/etc/passwd").await.unwrap().is_empty());
    for refused in [
        sftp.write("/tmp/x", b"x").await.is_err(),
        sftp.create("/tmp/x").await.is_err(),
        sftp.create_dir("/tmp/x").await.is_err(),
        sftp.remove_file("/etc/passwd").await.is_err(),
        sftp.rename("/etc/passwd", "/tmp/x").await.is_err(),
        sftp.symlink("/tmp/x", "/etc/passwd").await.is_err(),
        sftp.hardlink("/etc/passwd", "/tmp/x").await.is_err(),
    ] {
        assert!(refused);
    }
    let look = world.engine.list(&world.owner, &which, "/tmp", false, 10).await.unwrap();
    assert_eq!(look.entries, []);
    assert!(client.handle.channel_open_direct_tcpip("localhost", 80, "localhost", 1).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_key_does_not_start_a_sandbox() {
    let world = World::new().await;
    let which = world.sandbox("lab").await;
    world.engine.stop_sandbox(&world.owner, &which, None).await.unwrap();
    let (_, private) = world.ssh_key("eye", KeySpec { read_only: true, ..KeySpec::default() }).await;
    let mut client = world.connect().await;
    assert!(client.public_key("lab", &private).await);
    assert_eq!(client.run("true").await.status, Some(255));
    let files = client.session().await;
    files.request_subsystem(true, "sftp").await.unwrap();
    assert_eq!(finish(files).await.status, Some(255));
    refused_forwards(&client).await;
    let view = world.engine.sandbox(&world.owner, &which).await.unwrap();
    assert_eq!(view.state, SandboxState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_of_a_key_holds_for_sandboxes_of_its_logins() {
    let world = World::with(Settings { new_name: Some("new".to_owned()), ..Settings::default() }).await;
    let (_, private) = world.ssh_key("ana", KeySpec { max_sandboxes: Some(1), ..KeySpec::default() }).await;
    let (mut first, mut second) = (world.connect().await, world.connect().await);
    assert!(first.public_key("new", &private).await && second.public_key("new", &private).await);
    assert_eq!(first.run("echo mine").await, Ran::ok("mine\n"));
    let refused = second.run("echo mine too").await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(255), ""), "{refused:?}");
    let calls = world.engine.calls(&world.owner, Default::default()).await.unwrap();
    assert_eq!(calls.iter().filter(|call| call.error.as_deref() == Some("limit_reached")).count(), 1);
    drop(first);
    in_time(async { while second.run("echo now").await != Ran::ok("now\n") {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_a_key_ends_its_connections() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let (_, private) = world.ssh_key("ana", KeySpec::default()).await;
    let (_, other) = world.ssh_key("bo", KeySpec::default()).await;
    let (mut client, mut kept) = (world.connect().await, world.connect().await);
    assert!(client.public_key("lab", &private).await && kept.public_key("lab", &other).await);
    world.engine.revoke_key(&world.owner, "ana").await.unwrap();
    client.ended().await;
    assert!(!world.connect().await.public_key("lab", &private).await);
    assert_eq!(kept.run("echo still").await, Ran::ok("still\n"));
    // The same for a public key that is no longer bound.
    let bound = world.engine.ssh_keys(&world.owner).await.unwrap();
    let id = bound
        .iter()
        .find(|key| key.comment == "ana@laptop" && key.fingerprint == fingerprint(&other))
        .unwrap();
    world.engine.remove_ssh_key(&world.owner, id.id.as_str()).await.unwrap();
    kept.ended().await;
    assert!(!world.connect().await.public_key("lab", &other).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expiry_of_a_key_ends_its_connections() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let hour = Duration::from_secs(3600);
    let short = KeySpec { expires_in: Some(hour), ..KeySpec::default() };
    let (_, private) = world.ssh_key("ana", short).await;
    let long = KeySpec { expires_in: Some(2 * hour), ..KeySpec::default() };
    let (_, other) = world.ssh_key("bo", long).await;
    let (mut client, mut kept) = (world.connect().await, world.connect().await);
    assert!(client.public_key("lab", &private).await && kept.public_key("lab", &other).await);
    world.clock.advance(hour - Duration::from_secs(1));
    assert_eq!(client.run("echo still").await, Ran::ok("still\n"));
    world.clock.advance(Duration::from_secs(1));
    client.ended().await;
    assert_eq!(kept.run("echo still").await, Ran::ok("still\n"));
    assert!(!world.connect().await.public_key("lab", &private).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_cannot_shut_out_the_others_and_nobody_the_owner() {
    let world =
        World::with(Settings { max_connections: 3, max_connections_each: 2, ..Settings::default() }).await;
    world.sandbox("lab").await;
    let mut keys = Vec::new();
    for label in ["ana", "bo", "eve"] {
        keys.push(world.key(label, KeySpec::default()).await.secret);
    }
    // Whether a key got in to stay; one that did not is told why, and its connection ends.
    let enter = async |key: usize| {
        let mut client = world.connect().await;
        client.password("lab", &keys[key]).await;
        let is_in = match in_time(client.handle.channel_open_session()).await {
            Ok(channel) => {
                channel.exec(true, "echo in").await.is_ok() && finish(channel).await == Ran::ok("in\n")
            }
            Err(_refused) => false,
        };
        (is_in, client)
    };
    let (is_in, first) = enter(0).await;
    assert!(is_in);
    let (is_in, _second) = enter(0).await;
    assert!(is_in);
    let (is_in, third) = enter(0).await;
    assert!(!is_in, "a key has two places");
    third.ended().await;
    let (is_in, _other) = enter(1).await;
    assert!(is_in, "there is one more for another key");
    assert!(!enter(2).await.0, "there are three in all");
    assert_eq!(world.login_as_owner("lab").await.run("echo mine").await, Ran::ok("mine\n"));
    let calls = world.engine.calls(&world.owner, Default::default()).await.unwrap();
    let refused = calls.iter().filter(|call| call.error.is_some());
    let refused: Vec<_> =
        refused.map(|call| (call.action.as_str(), call.who.as_deref(), call.error.as_deref())).collect();
    assert_eq!(
        refused,
        [
            ("login", Some("key ana"), Some("limit_reached")),
            ("login", Some("key eve"), Some("limit_reached"))
        ]
    );
    drop(first);
    in_time(async { while !enter(2).await.0 {} }).await;
}

fn fingerprint(key: &PrivateKey) -> String {
    key.public_key().fingerprint(ssh_key::HashAlg::Sha256).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_key_belongs_to_one_key_and_is_bound_by_the_owner_alone() {
    let world = World::new().await;
    let (ana, private) = world.ssh_key("ana", KeySpec::default()).await;
    let bo = world.key("bo", KeySpec::default()).await;
    let line = public_line(private.public_key());
    let taken = world.engine.add_ssh_key(&world.owner, "bo", &line).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let as_ana = world.engine.authenticate_key(&ana.secret).await.unwrap();
    let as_bo = world.engine.authenticate_key(&bo.secret).await.unwrap();
    let second = public_line(private_key("second").public_key());
    // Whoever could bind another's public key would have its holder log in as somebody else, and could ask which are
    // bound.
    for (who, key, line) in
        [(&as_bo, "ana", &second), (&as_bo, "bo", &second), (&as_ana, "ana", &second), (&as_bo, "bo", &line)]
    {
        let refused = world.engine.add_ssh_key(who, key, line).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
    }
    world.engine.add_ssh_key(&world.owner, "ana", &second).await.unwrap();
    assert_eq!(world.engine.ssh_keys(&as_ana).await.unwrap().len(), 2);
    assert_eq!(world.engine.ssh_keys(&as_bo).await.unwrap(), []);
    let foreign = world.engine.remove_ssh_key(&as_bo, &fingerprint(&private)).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::NotFound);
    world.engine.remove_ssh_key(&as_ana, &fingerprint(&private)).await.unwrap();
    assert_eq!(world.engine.ssh_keys(&world.owner).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_a_trusted_authority_stand_for_the_keys_that_they_name() {
    let (authority, rogue) = (private_key("authority"), private_key("rogue"));
    let authorities = authority.public_key().to_openssh().unwrap().parse().unwrap();
    let world = World::with(Settings { authorities, ..Settings::default() }).await;
    world.sandbox("lab").await;
    world.key("ana", KeySpec::default()).await;
    let user = private_key("user");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let attempt_when = async |from: u64, to: u64, change: &dyn Fn(&mut Builder), signer: &PrivateKey| {
        let nonce = vec![7; 16];
        let mut builder = Builder::new(nonce, user.public_key().key_data().clone(), from, to).unwrap();
        change(&mut builder);
        // It can be set once only.
        builder.cert_type(CertType::User).ok();
        let certificate = builder.sign(signer).unwrap();
        let mut client = world.connect().await;
        let key = std::sync::Arc::new(user.clone());
        let done = client.handle.authenticate_openssh_cert("lab", key, certificate).await;
        (matches!(done, Ok(russh::client::AuthResult::Success)), client)
    };
    let attempt = async |change: &dyn Fn(&mut Builder), signer: &PrivateKey| {
        attempt_when(now - 600, now + 600, change, signer).await
    };
    let named = |name: &'static str| {
        move |builder: &mut Builder| {
            builder.valid_principal(name).unwrap();
        }
    };
    let (is_in, client) = attempt(&named("ana"), &authority).await;
    assert!(is_in);
    assert_eq!(client.run("echo in").await, Ran::ok("in\n"));
    let channel = client.session().await;
    channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
    channel.exec(true, "test -t 0 || echo no terminal").await.unwrap();
    assert_eq!(finish(channel).await, Ran::ok("no terminal\n"), "the certificate permits none");
    refused_forwards(&client).await;
    let forwarding = |builder: &mut Builder| {
        builder.valid_principal("ana").unwrap();
        builder.extension("permit-port-forwarding", "").unwrap();
    };
    let (is_in, client) = attempt(&forwarding, &authority).await;
    assert!(is_in && in_time(client.handle.tcpip_forward("localhost", 0)).await.is_ok());
    assert!(!attempt_when(now - 600, now - 300, &named("ana"), &authority).await.0, "it has expired");
    assert!(!attempt_when(now + 300, now + 600, &named("ana"), &authority).await.0, "it is not valid yet");
    assert!(!attempt(&named("ana"), &rogue).await.0);
    assert!(!attempt(&named("nobody"), &authority).await.0);
    let forced = |builder: &mut Builder| {
        builder.valid_principal("ana").unwrap();
        builder.critical_option("force-command", "true").unwrap();
    };
    assert!(!attempt(&forced, &authority).await.0);
    let elsewhere = |builder: &mut Builder| {
        builder.valid_principal("ana").unwrap();
        builder.critical_option("source-address", "10.0.0.0/8").unwrap();
    };
    assert!(!attempt(&elsewhere, &authority).await.0);
    let here = |builder: &mut Builder| {
        builder.valid_principal("ana").unwrap();
        builder.critical_option("source-address", "127.0.0.0/8").unwrap();
    };
    assert!(attempt(&here, &authority).await.0);
    let host = |builder: &mut Builder| {
        builder.cert_type(CertType::Host).unwrap();
        builder.valid_principal("ana").unwrap();
    };
    assert!(!attempt(&host, &authority).await.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_runs_the_daemon_needs_no_key_on_its_socket() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login_as_owner("lab").await;
    assert_eq!(client.run("echo mine").await, Ran::ok("mine\n"));
    let mut stranger = world.connect().await;
    let none = in_time(stranger.handle.authenticate_none("lab")).await.unwrap();
    assert!(!matches!(none, russh::client::AuthResult::Success));
}
