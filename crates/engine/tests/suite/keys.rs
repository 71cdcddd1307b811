use std::time::Duration;

use engine::{Access, Engine, Principal, SandboxFilter, SandboxRef, Scope};
use futures_util::FutureExt;
use sandbox::{ByteSize, ErrorKind, KeySpec, Namespace, Next, SandboxSpec, Subject, Thing};

use super::support::{World, in_time};

const HOUR: Duration = Duration::from_secs(3600);

fn named(label: &str) -> KeySpec {
    KeySpec { label: Some(label.to_owned()), namespace: Some(Namespace::default()), ..KeySpec::default() }
}

async fn kind_of(engine: &Engine, secret: &str) -> Result<Principal, ErrorKind> {
    engine.authenticate_key(secret).await.map_err(|error| {
        assert!(error.next() == Some(&Next::MakeKey), "{error:?}");
        assert!(
            !format!("{error:?}").contains(secret) || secret.is_empty(),
            "a secret must not be told: {error:?}"
        );
        error.kind()
    })
}

#[tokio::test]
async fn a_key_says_who_its_holder_is_and_how_far_it_may_go() {
    let world = World::new().await;
    let spec = KeySpec {
        label: Some("ci".to_owned()),
        namespace: Some("blue".parse().unwrap()),
        expires_in: Some(HOUR),
        max_sandboxes: Some(3),
        max_memory: Some(ByteSize::gib(2)),
        read_only: true,
        network: Some(sandbox::Policy::default()),
        format: sandbox::KeyFormat::Warren,
    };
    let made = world.engine.create_key(&world.who, spec).await.unwrap();
    let who = world.engine.authenticate_key(&made.secret).await.unwrap();
    assert_eq!(who.name, "key ci");
    assert_eq!(who.scope, Scope::One("blue".parse().unwrap()));
    assert_eq!((who.key.as_ref(), who.access), (Some(&made.key.id), Access::ReadOnly));
    assert_eq!((who.quota.sandboxes, who.quota.memory), (Some(3), Some(ByteSize::gib(2))));
    assert_eq!(who.network.as_deref(), Some(&sandbox::Policy::default()));

    let open = world.engine.create_key(&world.who, KeySpec::default()).await.unwrap();
    let who = world.engine.authenticate_key(&open.secret).await.unwrap();
    assert_eq!((who.scope, who.access), (Scope::All, Access::ReadWrite));
    assert_eq!(who.name, format!("key {}", open.key.id));
}

#[tokio::test]
async fn only_the_whole_secret_opens() {
    let world = World::new().await;
    let (one, other) = (
        world.engine.create_key(&world.who, named("one")).await.unwrap().secret,
        world.engine.create_key(&world.who, named("other")).await.unwrap().secret,
    );
    assert!(kind_of(&world.engine, &one).await.is_ok());
    let swapped = format!("{}{}", &one[..18], &other[18..]);
    let unknown = format!("wrn_0000000000000{}", &one[17..]);
    let longer = format!("{one}x");
    for secret in ["", "wrn_", &one[..60], &longer, &swapped, &unknown, &one.to_uppercase(), "wrn_é"] {
        assert_eq!(kind_of(&world.engine, secret).await, Err(ErrorKind::Unauthenticated), "{secret:?}");
    }
}

#[tokio::test]
async fn the_secret_is_told_once_and_stored_nowhere() {
    let world = World::new().await;
    let made = world.engine.create_key(&world.who, named("ci")).await.unwrap();
    let tail = made.secret.rsplit_once('_').map(|_| &made.secret[18..]).unwrap().to_owned();
    assert!(!format!("{made:?}").contains(&tail));
    world.engine.authenticate_key(&made.secret).await.unwrap();
    let listed = world.engine.keys(&world.who).await.unwrap();
    assert!(!format!("{listed:?}{:?}", world.engine).contains(&tail));
    let world = world.restart().await;
    for entry in std::fs::read_dir(world.home.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        assert!(!bytes.windows(tail.len()).any(|window| window == tail.as_bytes()), "{}", path.display());
    }
    assert!(kind_of(&world.engine, &made.secret).await.is_ok(), "and it still opens");
}

#[tokio::test]
async fn a_key_expires_by_the_clock_and_says_so_only_to_its_holder() {
    let world = World::new().await;
    let spec = KeySpec { expires_in: Some(HOUR), ..named("short") };
    let made = world.engine.create_key(&world.who, spec).await.unwrap();
    let who = kind_of(&world.engine, &made.secret).await.unwrap();
    let ended = world.engine.clone();
    let holder = who.clone();
    let ended = tokio::spawn(async move { ended.principal_ended(&holder).await });
    world.clock.advance(HOUR - Duration::from_secs(1));
    assert!(kind_of(&world.engine, &made.secret).await.is_ok());
    assert!(!ended.is_finished());
    world.clock.advance(Duration::from_secs(1));
    in_time(ended).await.unwrap();
    let error = world.engine.authenticate_key(&made.secret).await.unwrap_err();
    assert!(error.to_string().contains("short has expired"), "{error}");
    let guessed = format!("{}x", &made.secret[..60]);
    let error = world.engine.authenticate_key(&guessed).await.unwrap_err();
    assert!(error.to_string().contains("unknown key"), "{error}");
    // A caller who was admitted before is refused now.
    let error = world.engine.sandboxes(&who, &SandboxFilter::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    let error = world.engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    in_time(world.engine.principal_ended(&who)).await;
}

#[tokio::test]
async fn a_revoked_key_opens_nothing_from_that_moment_on() {
    let world = World::new().await;
    let (made, kept) = (
        world.engine.create_key(&world.who, named("leaked")).await.unwrap(),
        world.engine.create_key(&world.who, named("kept")).await.unwrap(),
    );
    let who = world.engine.authenticate_key(&made.secret).await.unwrap();
    let other = world.engine.authenticate_key(&kept.secret).await.unwrap();
    let which: SandboxRef =
        world.engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap().id.into();
    let engine = world.engine.clone();
    let holder = who.clone();
    let ended = tokio::spawn(async move { engine.principal_ended(&holder).await });
    let mut stays = Box::pin(world.engine.principal_ended(&other));
    assert!(stays.as_mut().now_or_never().is_none());

    let revoked = world.engine.revoke_key(&world.who, "leaked").await.unwrap();
    assert!(revoked.revoked_at.is_some());
    in_time(ended).await.unwrap();
    assert!(stays.as_mut().now_or_never().is_none(), "another key's end is not its own");
    assert_eq!(kind_of(&world.engine, &made.secret).await, Err(ErrorKind::Unauthenticated));
    let error = world.engine.sandbox(&who, &which).await.unwrap_err();
    assert!(error.to_string().contains("revoked"), "{error}");
    assert!(world.engine.sandbox(&other, &which).await.is_ok(), "its sandboxes stay");
    // Revoking again is fine, by id too; and a restart does not bring it back.
    assert_eq!(world.engine.revoke_key(&world.who, made.key.id.as_str()).await.unwrap(), revoked);
    drop(stays);
    let world = world.restart().await;
    assert_eq!(kind_of(&world.engine, &made.secret).await, Err(ErrorKind::Unauthenticated));
    assert!(kind_of(&world.engine, &kept.secret).await.is_ok());
}

#[tokio::test]
async fn keys_are_managed_by_who_comes_without_one() {
    let world = World::new().await;
    let spec = KeySpec { namespace: None, ..named("root") };
    let made = world.engine.create_key(&world.who, spec).await.unwrap();
    let holder = world.engine.authenticate_key(&made.secret).await.unwrap();
    let namespaced = Principal::of_namespace("ana", Namespace::default());
    for who in [&holder, &namespaced] {
        let denied = [
            world.engine.create_key(who, named("successor")).await.map(drop),
            world.engine.keys(who).await.map(drop),
            world.engine.revoke_key(who, "root").await.map(drop),
        ];
        for denied in denied {
            assert_eq!(denied.unwrap_err().kind(), ErrorKind::Denied, "{who:?}");
        }
    }
    assert_eq!(world.engine.keys(&world.who).await.unwrap().len(), 1);
}

#[tokio::test]
async fn labels_name_one_key_that_lives() {
    let world = World::new().await;
    let first = world.engine.create_key(&world.who, named("ci")).await.unwrap();
    let taken = world.engine.create_key(&world.who, named("ci")).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    assert!(
        taken.to_string().contains("ci")
            && taken.next() == Some(&Next::FreeName(Subject::new(Thing::Key, "ci"))),
        "{taken:?}"
    );
    world.engine.revoke_key(&world.who, "ci").await.unwrap();
    let second = world.engine.create_key(&world.who, named("ci")).await.unwrap();
    assert_ne!(first.key.id, second.key.id);
    // The label means the valid one.
    assert_eq!(world.engine.revoke_key(&world.who, "ci").await.unwrap().id, second.key.id);
    let missing = world.engine.revoke_key(&world.who, "nobody").await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    for label in ["", "a b", "key-0000000000000", "ü"] {
        let error = world.engine.create_key(&world.who, named(label)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{label:?}");
    }
}

#[tokio::test]
async fn a_key_that_expired_gives_its_label_to_the_next() {
    let world = World::new().await;
    let spec = KeySpec { expires_in: Some(HOUR), ..named("nightly") };
    let first = world.engine.create_key(&world.who, spec.clone()).await.unwrap();
    world.clock.advance(HOUR);
    let second = world.engine.create_key(&world.who, spec.clone()).await.unwrap();
    let taken = world.engine.create_key(&world.who, spec).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists, "this one lives");
    let world = world.restart().await;
    assert_eq!(kind_of(&world.engine, &first.secret).await, Err(ErrorKind::Unauthenticated));
    assert!(kind_of(&world.engine, &second.secret).await.is_ok());
}

#[tokio::test]
async fn keys_that_ended_are_not_remembered_for_ever() {
    let world = World::new().await;
    let brief = || KeySpec { expires_in: Some(HOUR), ..KeySpec::default() };
    let first = world.engine.create_key(&world.who, brief()).await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    for _ in 0..1000 {
        world.engine.create_key(&world.who, brief()).await.unwrap();
    }
    let kept = world.engine.create_key(&world.who, named("kept")).await.unwrap();
    world.clock.advance(HOUR);
    assert_eq!(world.engine.keys(&world.who).await.unwrap().len(), 1002);
    world.engine.create_key(&world.who, named("next")).await.unwrap();
    let world = world.restart().await;
    let keys = world.engine.keys(&world.who).await.unwrap();
    assert_eq!(keys.len(), 1002, "a thousand that ended, and two that live");
    assert!(keys.iter().all(|key| key.id != first.key.id), "the one that ended first is gone");
    assert!(kind_of(&world.engine, &kept.secret).await.is_ok());
}

#[tokio::test]
async fn the_last_use_is_known_to_the_minute_and_survives() {
    let world = World::new().await;
    let made = world.engine.create_key(&world.who, named("ci")).await.unwrap();
    let last = async |world: &World| world.engine.keys(&world.who).await.unwrap()[0].last_used_at;
    assert_eq!(last(&world).await, None);
    world.engine.authenticate_key(&made.secret).await.unwrap();
    let first = last(&world).await.unwrap();
    world.clock.advance(Duration::from_secs(59));
    world.engine.authenticate_key(&made.secret).await.unwrap();
    assert_eq!(last(&world).await, Some(first), "not written again within the minute");
    world.clock.advance(Duration::from_secs(1));
    world.engine.authenticate_key(&made.secret).await.unwrap();
    let second = last(&world).await.unwrap();
    assert_eq!(second.duration_since(first).as_secs(), 60);
    let world = world.restart().await;
    assert_eq!(last(&world).await, Some(second));
}
