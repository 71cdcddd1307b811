//! Builds: who may build, and who owns their sandboxes.

use engine::{BuildSpec, ImageOptions, Principal, Progress};
use sandbox::{ErrorKind, SandboxSpec};

use super::support::{World, bytes};

#[tokio::test]
async fn images_are_shared_names_so_only_who_may_everything_builds() {
    let world = World::new().await;
    let stranger = Principal::of_namespace("stranger", "team".parse().unwrap());
    let (events, _told) = tokio::sync::mpsc::channel(1);
    let refused =
        world.engine.build_image(&stranger, BuildSpec::default(), bytes(""), events, Progress::none()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn nobody_can_make_a_sandbox_look_like_a_builds() {
    let world = World::new().await;
    let labels = [("warren.build".to_owned(), "mine".to_owned())].into();
    let refused =
        world.engine.create_sandbox(&world.who, SandboxSpec { labels, ..SandboxSpec::default() }).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("warren.build"), "{error}");
}

#[tokio::test]
async fn names_that_mean_something_else_are_refused_before_anything_is_built() {
    let world = World::with(|config| config.images = Some(ImageOptions::default())).await;
    for name in ["host", "sha256:abc", "0123456789ab"] {
        let spec = BuildSpec { tags: vec![name.parse().unwrap()], ..BuildSpec::default() };
        let (events, _told) = tokio::sync::mpsc::channel(1);
        let refused = world.engine.build_image(&world.who, spec, bytes(""), events, Progress::none()).await;
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert!(error.to_string().contains("no image can be called"), "{error}");
    }
}
