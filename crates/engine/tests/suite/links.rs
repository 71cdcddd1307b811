//! Signed links: how long they are valid, and for whom.

use std::time::Duration;

use engine::{Access, Force, LinkRefused, LinkTarget, OpenLink, Principal, SandboxRef, Scope};
use sandbox::{ErrorKind, KeySpec, SandboxId, SandboxSpec};

use super::support::World;

const MINUTE: Duration = Duration::from_secs(60);

fn file(path: &str) -> LinkTarget {
    LinkTarget::File { path: path.to_owned() }
}

fn sign(world: &World, who: &Principal, sandbox: &SandboxId) -> String {
    world.engine.sign_link(who, sandbox, &file("/a"), MINUTE).unwrap().token
}

#[track_caller]
fn ended(world: &World, token: &str) -> String {
    match world.engine.open_link(token) {
        Err(LinkRefused::Ended(error) | LinkRefused::Gone { error, .. }) => {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_link_holds_for_its_time_and_over_a_restart() {
    let world = World::new().await;
    let sandbox = world.create_named("box").await.id;
    let signed = world.engine.sign_link(&world.who, &sandbox, &file("/a b"), MINUTE).unwrap();
    assert_eq!(signed.expires_at, "2026-01-01T00:01:00Z".parse().unwrap());
    let world = world.restart().await;
    let OpenLink { who, sandbox: opened, target, .. } = world.engine.open_link(&signed.token).unwrap();
    assert_eq!((&opened, &target), (&sandbox, &file("/a b")));
    assert_eq!(
        (who.scope, who.access, who.is_owner),
        (
            Scope::Sandbox { namespace: "default".parse().unwrap(), id: sandbox.clone() },
            Access::ReadOnly,
            false
        )
    );
    world.clock.advance(MINUTE - Duration::from_secs(1));
    assert!(world.engine.open_link(&signed.token).is_ok());
    world.clock.advance(Duration::from_secs(1));
    assert!(ended(&world, &signed.token).contains("expired"));
    // An unlimited time is cut to a week, and zero becomes a second.
    for (asked, held) in [(Duration::MAX, engine::MAX_LINK_TTL), (Duration::ZERO, Duration::from_secs(1))] {
        let signed = world.engine.sign_link(&world.who, &sandbox, &file("/a"), asked).unwrap();
        let held = jiff::SignedDuration::try_from(held).unwrap();
        assert_eq!(signed.expires_at.duration_since(engine::Clock::now(&world.clock)), held);
    }
}

#[tokio::test]
async fn a_link_of_somebody_without_a_key_ends_with_the_daemon() {
    let world = World::new().await;
    let sandbox = world.create_named("box").await.id;
    let dev = Principal::developer("dev");
    let signed = world.engine.sign_link(&dev, &sandbox, &LinkTarget::Inside, MINUTE).unwrap();
    assert!(world.engine.open_link(&signed.token).is_ok());
    let world = world.restart().await;
    assert!(matches!(world.engine.open_link(&signed.token), Err(LinkRefused::Forged(_))));
}

#[tokio::test]
async fn a_link_ends_with_the_key_that_asked_for_it() {
    let world = World::new().await;
    let sandbox = world.create_named("box").await.id;
    let holder = async |spec: KeySpec| {
        let made = world.engine.create_key(&world.who, spec).await.unwrap();
        world.engine.authenticate_key(&made.secret).await.unwrap()
    };
    let brief = holder(KeySpec { expires_in: Some(MINUTE / 2), ..KeySpec::default() }).await;
    let revoked = holder(KeySpec { read_only: true, ..KeySpec::default() }).await;
    let (of_brief, of_revoked) = (sign(&world, &brief, &sandbox), sign(&world, &revoked, &sandbox));
    let opened = world.engine.open_link(&of_revoked).unwrap();
    assert_eq!(opened.who.key, revoked.key);
    world.engine.revoke_key(&world.who, revoked.key.as_ref().unwrap().as_str()).await.unwrap();
    ended(&world, &of_revoked);
    assert!(world.engine.sign_link(&revoked, &sandbox, &file("/a"), MINUTE).is_err());
    assert!(world.engine.open_link(&of_brief).is_ok());
    world.clock.advance(MINUTE / 2);
    ended(&world, &of_brief);
}

#[tokio::test]
async fn a_link_is_to_one_sandbox_that_its_asker_sees() {
    let world = World::new().await;
    let sandbox = world.create_named("box").await.id;
    let stranger = Principal::of_namespace("ana", "blue".parse().unwrap());
    let refused = world.engine.sign_link(&stranger, &sandbox, &file("/a"), MINUTE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let blue = SandboxSpec { namespace: "blue".parse().unwrap(), ..SandboxSpec::default() };
    let theirs = world.create_from(blue).await.id;
    let opened = world.engine.open_link(&sign(&world, &stranger, &theirs)).unwrap();
    // Its principal sees that namespace and no other.
    assert!(world.engine.sandbox(&opened.who, &SandboxRef::from(&theirs)).await.is_ok());
    assert!(world.engine.sandbox(&opened.who, &SandboxRef::from(&sandbox)).await.is_err());
    let token = sign(&world, &world.who, &sandbox);
    world.engine.remove_sandbox(&world.who, &SandboxRef::from(&sandbox), Force::Yes).await.unwrap();
    ended(&world, &token);
    for path in ["", "/a\0b", &"/x".repeat(4000)] {
        let refused = world.engine.sign_link(&world.who, &theirs, &file(path), MINUTE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest, "{path:?}");
    }
}

#[tokio::test]
async fn a_link_of_another_daemon_is_forged() {
    let (one, other) = (World::new().await, World::new().await);
    let sandbox = one.create_named("box").await.id;
    let token = sign(&one, &one.who, &sandbox);
    assert!(one.engine.open_link(&token).is_ok());
    assert!(matches!(other.engine.open_link(&token), Err(LinkRefused::Forged(_))));
    for text in ["", "x", "....", &"A".repeat(200), "ü", "%00"] {
        assert!(matches!(one.engine.open_link(text), Err(LinkRefused::Forged(_))), "{text:?}");
    }
}
