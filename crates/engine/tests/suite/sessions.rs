//! Sessions of the dashboard and shares: how long they last, and with what they end.

use std::time::Duration;

use engine::{
    Access, LinkTarget, NewSession, ONCE_LASTS, Principal, SESSION_LASTS, Scope, SessionKind, ShareSpec,
    ShareTarget, SignIn,
};
use futures_util::FutureExt as _;
use sandbox::{ErrorKind, KeySpec, Namespace};

use super::support::{World, in_time};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_secs(1);

fn named(label: &str, expires_in: Option<Duration>) -> KeySpec {
    KeySpec {
        label: Some(label.to_owned()),
        namespace: Some(Namespace::default()),
        expires_in,
        ..KeySpec::default()
    }
}

async fn refused(world: &World, how: SignIn) -> ErrorKind {
    world.engine.sign_in(how).await.map(drop).unwrap_err().kind()
}

fn opens(world: &World, session: &NewSession) -> bool {
    world.engine.open_session(&session.token, &session.proof).is_some()
}

#[tokio::test]
async fn a_one_time_token_is_good_once_and_for_five_minutes() {
    let world = World::new().await;
    let once = |world: &World| world.engine.new_once_token(&world.who).unwrap().token;
    let token = once(&world);
    world.clock.advance(ONCE_LASTS - MOMENT);
    let session = world.engine.sign_in(SignIn::Once(token.clone())).await.unwrap();
    assert!(session.who.is_owner && opens(&world, &session));
    assert_eq!(world.engine.session_view(&session.who).who, SessionKind::Owner);
    assert_eq!(refused(&world, SignIn::Once(token)).await, ErrorKind::Unauthenticated);
    let late = once(&world);
    world.clock.advance(ONCE_LASTS);
    assert_eq!(refused(&world, SignIn::Once(late)).await, ErrorKind::Unauthenticated);
    // Nothing of it survives the daemon.
    let waiting = once(&world);
    let world = world.restart().await;
    assert!(!opens(&world, &session));
    assert_eq!(refused(&world, SignIn::Once(waiting)).await, ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn a_session_ends_with_its_time_and_with_its_key() {
    let world = World::new().await;
    let key = world.engine.create_key(&world.who, named("ana", None)).await.unwrap().secret;
    let short = world.engine.create_key(&world.who, named("short", Some(MINUTE))).await.unwrap().secret;
    let sign_in = async |key: &str| world.engine.sign_in(SignIn::Key(key.to_owned())).await.unwrap();
    let (first, brief) = (sign_in(&key).await, sign_in(&short).await);
    assert_eq!(brief.expires_at, "2026-01-01T00:01:00Z".parse().unwrap());
    let (engine, who) = (world.engine.clone(), brief.who.clone());
    let ended = tokio::spawn(async move { engine.principal_ended(&who).await });
    world.clock.advance(MINUTE);
    in_time(ended).await.unwrap();
    assert!(opens(&world, &first) && !opens(&world, &brief));

    world.clock.advance(SESSION_LASTS - MINUTE);
    assert!(!opens(&world, &first));
    let second = sign_in(&key).await;
    let (engine, who) = (world.engine.clone(), second.who.clone());
    let ended = tokio::spawn(async move { engine.principal_ended(&who).await });
    world.engine.revoke_key(&world.who, "ana").await.unwrap();
    in_time(ended).await.unwrap();
    assert!(!opens(&world, &second));
    assert_eq!(world.engine.fleet(&second.who).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn signing_out_ends_one_session_and_what_it_has_open() {
    let world = World::new().await;
    let key = world.engine.create_key(&world.who, named("ana", None)).await.unwrap().secret;
    let first = world.engine.sign_in(SignIn::Key(key.clone())).await.unwrap();
    let second = world.engine.sign_in(SignIn::Key(key)).await.unwrap();
    let ended = world.engine.principal_ended(&first.who);
    world.engine.sign_out(&first.who);
    in_time(ended).await;
    assert!(!opens(&world, &first) && opens(&world, &second));
    assert!(world.engine.principal_ended(&second.who).now_or_never().is_none());
    let refused = world.engine.sandboxes(&first.who, &Default::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn a_share_gives_less_than_whoever_shares_has() {
    let world = World::new().await;
    let key = world.engine.create_key(&world.who, named("ana", None)).await.unwrap().secret;
    let ana = world.engine.authenticate_key(&key).await.unwrap();
    let lab = world.create_named("lab").await;
    world.create_named("other").await;
    let spec = |which: &str| ShareSpec { target: ShareTarget::Sandbox(which.parse().unwrap()), ttl: MINUTE };
    let share = world.engine.share(&ana, &spec("lab")).await.unwrap();
    let watcher = world.engine.sign_in(SignIn::Share(share.token.clone())).await.unwrap();
    let NewSession { who, .. } = &watcher;
    assert_eq!((&who.access, who.is_owner, who.is_watcher()), (&Access::ReadOnly, false, true));
    let namespace = Namespace::default();
    assert_eq!(who.scope, Scope::Sandbox { namespace, id: lab.id.clone() });
    let seen = world.engine.sandboxes(who, &Default::default()).await.unwrap();
    assert_eq!(seen.iter().map(|view| &view.id).collect::<Vec<_>>(), [&lab.id]);
    // What it signed would have the sharer's rights.
    let target = LinkTarget::Inside;
    for refused in [
        world.engine.sign_link(who, &lab.id, &target, MINUTE).map(drop),
        world.engine.share(who, &spec("lab")).await.map(drop),
        world.engine.new_once_token(who).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Denied);
    }
    assert_eq!(world.engine.share(who, &spec("other")).await.unwrap_err().kind(), ErrorKind::Denied);

    let stranger = Principal::of_namespace("ben", "blue".parse().unwrap());
    assert_eq!(world.engine.share(&stranger, &spec("lab")).await.unwrap_err().kind(), ErrorKind::NotFound);
    let of_key = ShareSpec { target: ShareTarget::Key("ana".to_owned()), ttl: MINUTE };
    assert_eq!(world.engine.share(&stranger, &of_key).await.unwrap_err().kind(), ErrorKind::Denied);
    for who in [&ana, &world.who] {
        world.engine.share(who, &of_key).await.unwrap();
    }

    // A link is no share, and a share no link.
    let link = world.engine.sign_link(&ana, &lab.id, &target, MINUTE).unwrap().token;
    assert_eq!(refused(&world, SignIn::Share(link)).await, ErrorKind::Unauthenticated);
    assert!(world.engine.open_link(&share.token).is_err());
    world.clock.advance(MINUTE);
    assert!(!opens(&world, &watcher));
    assert_eq!(refused(&world, SignIn::Share(share.token)).await, ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn a_share_is_listed_for_whoever_made_it_and_ends_alone() {
    let world = World::new().await;
    let new_key = async |label: &str| {
        let secret = world.engine.create_key(&world.who, named(label, None)).await.unwrap().secret;
        world.engine.authenticate_key(&secret).await.unwrap()
    };
    let (ana, ben) = (new_key("ana").await, new_key("ben").await);
    let lab = world.create_named("lab").await;
    let of_lab = ShareSpec { target: ShareTarget::Sandbox("lab".parse().unwrap()), ttl: MINUTE };
    let first = world.engine.share(&ana, &of_lab).await.unwrap();
    world.clock.advance(SECOND);
    let second = world.engine.share(&ana, &of_lab).await.unwrap();
    let of_key = ShareSpec { target: ShareTarget::Key("ben".to_owned()), ttl: MINUTE * 2 };
    let third = world.engine.share(&ben, &of_key).await.unwrap();

    let listed = world.engine.shares(&ana).await.unwrap();
    assert_eq!(listed.iter().map(|share| &share.id).collect::<Vec<_>>(), [&first.id, &second.id]);
    let view = &listed[0];
    assert_eq!((view.made_by.as_str(), view.name.as_str()), ("key ana", "lab"));
    assert_eq!((&view.key, &view.sandbox, &view.shown_key), (&ana.key, &Some(lab.id.clone()), &None));
    assert_eq!(view.expires_at, first.expires_at);
    assert_eq!(world.engine.shares(&ben).await.unwrap()[0].name, "ben");
    assert_eq!(world.engine.shares(&world.who).await.unwrap().len(), 3);

    // Another key's share is none; an own one ends with what its watchers have open, and the others stay.
    let refused = world.engine.revoke_share(&ben, &first.id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let watch = async |share: &engine::SignedShare| {
        world.engine.sign_in(SignIn::Share(share.token.clone())).await.unwrap()
    };
    let (one, other) = (watch(&first).await, watch(&second).await);
    assert_eq!(world.engine.shares(&one.who).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(world.engine.revoke_share(&one.who, &first.id).await.unwrap_err().kind(), ErrorKind::Denied);
    let ended = world.engine.principal_ended(&one.who);
    world.engine.revoke_share(&ana, &first.id).await.unwrap();
    in_time(ended).await;
    assert!(!opens(&world, &one) && opens(&world, &other));
    assert_eq!(refused_share(&world, &first.token).await, ErrorKind::Unauthenticated);
    assert_eq!(world.engine.revoke_share(&ana, &first.id).await.unwrap_err().kind(), ErrorKind::NotFound);

    // The next daemon knows which ones hold.
    let world = world.crash().await;
    assert_eq!(refused_share(&world, &first.token).await, ErrorKind::Unauthenticated);
    world.engine.sign_in(SignIn::Share(second.token.clone())).await.unwrap();
    world.clock.advance(MINUTE);
    let left = world.engine.shares(&world.who).await.unwrap();
    assert_eq!(left.iter().map(|share| &share.id).collect::<Vec<_>>(), [&third.id]);
    world.engine.revoke_share(&world.who, &third.id).await.unwrap();
    assert_eq!(world.engine.shares(&world.who).await.unwrap(), []);
}

async fn refused_share(world: &World, token: &str) -> ErrorKind {
    refused(world, SignIn::Share(token.to_owned())).await
}
