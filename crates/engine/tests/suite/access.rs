use engine::{Follow, Force, Principal, SandboxFilter, SandboxRef};
use futures_util::TryStreamExt;
use sandbox::{ErrorKind, ExecSpec, Namespace, SandboxSpec};

use super::support::{World, advice};

fn of(namespace: &str) -> (Principal, SandboxSpec) {
    let namespace: Namespace = namespace.parse().unwrap();
    let who = Principal::of_namespace(format!("key of {namespace}"), namespace.clone());
    (who, SandboxSpec { namespace, name: Some("box".parse().unwrap()), ..SandboxSpec::default() })
}

#[tokio::test]
async fn a_key_sees_its_own_namespace_and_nothing_else() {
    let world = World::new().await;
    let ((red, red_spec), (blue, blue_spec)) = (of("red"), of("blue"));
    let engine = &world.engine;
    let mine = engine.create_sandbox(&red, red_spec).await.unwrap();
    // The same name in another namespace is another sandbox.
    let theirs = engine.create_sandbox(&blue, blue_spec.clone()).await.unwrap();
    assert_ne!(mine.id, theirs.id);

    let by_name: SandboxRef = "box".parse().unwrap();
    assert_eq!(engine.sandbox(&red, &by_name).await.unwrap().id, mine.id);
    assert_eq!(engine.sandbox(&blue, &by_name).await.unwrap().id, theirs.id);
    let listed = engine.sandboxes(&red, &SandboxFilter::default()).await.unwrap();
    assert_eq!(listed.iter().map(|view| &view.id).collect::<Vec<_>>(), [&mine.id]);

    // Neither its id nor its full name helps.
    let foreign =
        [SandboxRef::from(&theirs.id), SandboxRef::new("box", Some("blue".parse().unwrap())).unwrap()];
    for which in &foreign {
        let kind = |error: sandbox::Error| error.kind();
        assert_eq!(engine.sandbox(&red, which).await.map_err(kind), Err(ErrorKind::NotFound));
        assert_eq!(engine.stop_sandbox(&red, which, None).await.map_err(kind), Err(ErrorKind::NotFound));
        assert_eq!(
            engine.remove_sandbox(&red, which, Force::Yes).await.map_err(kind),
            Err(ErrorKind::NotFound)
        );
        let exec = engine.exec(&red, which, ExecSpec::shell("true")).await;
        assert_eq!(exec.map_err(kind), Err(ErrorKind::NotFound));
        assert_eq!(engine.stat(&red, which, "/", true).await.map_err(kind), Err(ErrorKind::NotFound));
    }
    let error = engine.create_sandbox(&red, blue_spec).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("blue") && advice(&error).contains("red"), "{error:?}");

    // Events too.
    engine.stop_sandbox(&blue, &by_name, None).await.unwrap();
    engine.stop_sandbox(&red, &by_name, None).await.unwrap();
    let events: Vec<_> = engine.events(&red, Some(0), Follow::No).await.unwrap().try_collect().await.unwrap();
    assert!(!events.is_empty());
    assert!(events.iter().all(|event| event.sandbox.as_ref() == Some(&mine.id)), "{events:?}");
    // The operator sees all.
    assert_eq!(engine.sandboxes(&world.who, &SandboxFilter::default()).await.unwrap().len(), 2);
    assert!(engine.sandbox(&world.who, &foreign[1]).await.is_ok());
}
