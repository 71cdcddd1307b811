//! Who gets in, as whom, and until when.

use engine::Access;
use russh::keys::{
    PrivateKey,
    ssh_key::{self, certificate::Builder, certificate::CertType},
};
use sandbox::{ErrorKind, KeySpec};
use ssh::Settings;

use super::support::{Ran, World, in_time, private_key, public_line};

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
        answers.push(ran.stderr.replace("lab", "none"));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[2], answers[3]);
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
async fn revoking_a_key_ends_its_connections() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let (_, private) = world.ssh_key("ana", KeySpec::default()).await;
    let (_, other) = world.ssh_key("bo", KeySpec::default()).await;
    let (mut client, mut kept) = (world.connect().await, world.connect().await);
    assert!(client.public_key("lab", &private).await && kept.public_key("lab", &other).await);
    world.engine.revoke_key(&world.owner, "ana").await.unwrap();
    in_time(async {
        while !client.handle.is_closed() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!world.connect().await.public_key("lab", &private).await);
    assert_eq!(kept.run("echo still").await, Ran::ok("still\n"));
    // The same for a public key that is no longer bound.
    let bound = world.engine.ssh_keys(&world.owner).await.unwrap();
    let id = bound
        .iter()
        .find(|key| key.comment == "ana@laptop" && key.fingerprint == fingerprint(&other))
        .unwrap();
    world.engine.remove_ssh_key(&world.owner, id.id.as_str()).await.unwrap();
    in_time(async {
        while !kept.handle.is_closed() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!world.connect().await.public_key("lab", &other).await);
}

fn fingerprint(key: &PrivateKey) -> String {
    key.public_key().fingerprint(ssh_key::HashAlg::Sha256).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_key_belongs_to_one_key_and_is_managed_by_that_or_the_owner() {
    let world = World::new().await;
    let (ana, private) = world.ssh_key("ana", KeySpec::default()).await;
    let bo = world.key("bo", KeySpec::default()).await;
    let line = public_line(private.public_key());
    let taken = world.engine.add_ssh_key(&world.owner, "bo", &line).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let as_ana = world.engine.authenticate_key(&ana.secret).await.unwrap();
    let as_bo = world.engine.authenticate_key(&bo.secret).await.unwrap();
    let second = public_line(private_key("second").public_key());
    let foreign = world.engine.add_ssh_key(&as_bo, "ana", &second).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::NotFound);
    world.engine.add_ssh_key(&as_ana, "ana", &second).await.unwrap();
    assert_eq!(world.engine.ssh_keys(&as_ana).await.unwrap().len(), 2);
    assert_eq!(world.engine.ssh_keys(&as_bo).await.unwrap(), []);
    let foreign = world.engine.remove_ssh_key(&as_bo, &fingerprint(&private)).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::NotFound);
    let reading = engine::Principal { access: Access::ReadOnly, ..as_ana.clone() };
    assert_eq!(
        world.engine.add_ssh_key(&reading, "ana", &second).await.unwrap_err().kind(),
        ErrorKind::Denied
    );
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
    let attempt = async |change: &dyn Fn(&mut Builder), signer: &PrivateKey| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let nonce = vec![7; 16];
        let mut builder =
            Builder::new(nonce, user.public_key().key_data().clone(), now - 60, now + 60).unwrap();
        change(&mut builder);
        // It can be set once only.
        builder.cert_type(CertType::User).ok();
        let certificate = builder.sign(signer).unwrap();
        let mut client = world.connect().await;
        let key = std::sync::Arc::new(user.clone());
        let done = client.handle.authenticate_openssh_cert("lab", key, certificate).await;
        (matches!(done, Ok(russh::client::AuthResult::Success)), client)
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
    assert_eq!(
        super::support::finish(channel).await,
        Ran::ok("no terminal\n"),
        "the certificate permits none"
    );
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
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (ssh, owner) = (world.ssh.clone(), world.owner.clone());
    tokio::spawn(async move { ssh.serve_known(theirs, owner).await });
    let (forwarded, incoming) = tokio::sync::mpsc::unbounded_channel();
    let events = super::support::events(forwarded);
    let mut handle = russh::client::connect_stream(Default::default(), ours, events).await.unwrap();
    let done = in_time(handle.authenticate_none("lab")).await.unwrap();
    assert!(matches!(done, russh::client::AuthResult::Success));
    let client = super::support::Client { handle, incoming };
    assert_eq!(client.run("echo mine").await, Ran::ok("mine\n"));
    let mut stranger = world.connect().await;
    let none = in_time(stranger.handle.authenticate_none("lab")).await.unwrap();
    assert!(!matches!(none, russh::client::AuthResult::Success));
}
