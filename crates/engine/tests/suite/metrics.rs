//! The metrics, and who may read them.

use engine::{Force, Frontend, MetricsFormat};
use futures_util::future::join_all;
use sandbox::{ErrorKind, ExecSpec, KeySpec, SandboxSpec};

use super::{snapshots, support::World};

async fn text(world: &World) -> String {
    world.engine.metrics(&world.who, MetricsFormat::OpenMetrics).await.unwrap()
}

/// The value of a line that begins like this.
fn value(text: &str, line: &str) -> Option<f64> {
    let found = text.lines().find_map(|other| other.strip_prefix(line))?;
    found.trim().parse().ok()
}

#[tokio::test]
async fn work_is_counted_by_its_result() {
    let world = World::new().await;
    let which = world.create().await;
    world.run(&which, "echo hello").await;
    world.run(&which, "exit 3").await;
    let named = SandboxSpec { name: Some("lab".parse().unwrap()), ..SandboxSpec::default() };
    world.engine.create_sandbox(&world.who, named.clone()).await.unwrap();
    world.engine.create_sandbox(&world.who, named).await.unwrap_err();
    world.engine.exec(&world.who, &which, ExecSpec::default()).await.unwrap_err();

    let text = text(&world).await;
    let is = |line: &str, expected: f64| assert_eq!(value(&text, line), Some(expected), "{line}\n{text}");
    is("warren_creates_total{result=\"ok\"}", 2.0);
    is("warren_creates_total{result=\"already_exists\"}", 1.0);
    is("warren_execs_total{kind=\"command\",result=\"ok\"}", 2.0);
    is("warren_execs_total{kind=\"command\",result=\"invalid_request\"}", 1.0);
    is("warren_exec_ends_total{result=\"ok\"}", 1.0);
    is("warren_exec_ends_total{result=\"failed\"}", 1.0);
    is("warren_output_bytes_total", 6.0);
    is("warren_events_total{kind=\"sandbox_created\"}", 2.0);
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn events_of_snapshots_are_counted_too() {
    let world = World::new().await;
    let which = world.create().await;
    world.snapshot(&which, "base").await;
    world.engine.remove_snapshot(&world.who, &snapshots::which("base"), Force::No).await.unwrap();
    let text = text(&world).await;
    for kind in ["snapshot_created", "snapshot_removed"] {
        let line = format!("warren_events_total{{kind=\"{kind}\"}}");
        assert_eq!(value(&text, &line), Some(1.0), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scrapes_at_the_same_time_are_each_whole() {
    let world = World::new().await;
    world.create().await;
    let scrapes = (0..64).map(|_| {
        let (engine, who) = (world.engine.clone(), world.who.clone());
        tokio::spawn(async move { engine.metrics(&who, MetricsFormat::OpenMetrics).await.unwrap() })
    });
    for text in join_all(scrapes).await {
        let text = text.unwrap();
        let sum: f64 = text
            .lines()
            .filter(|line| line.starts_with("warren_sandboxes{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        assert_eq!(sum, 1.0, "{text}");
        // Not measured yet is not nothing.
        assert!(value(&text, "warren_home_size_bytes ").is_none_or(|size| size > 0.0), "{text}");
        assert_eq!(value(&text, "warren_images "), None, "{text}");
    }
}

#[tokio::test]
async fn a_gauge_follows_what_is_there() {
    let world = World::new().await;
    let which = world.create().await;
    let running = |text: &str| {
        let line =
            text.lines().find(|line| line.starts_with("warren_sandboxes{") && line.contains("\"running\""));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(running(&text(&world).await), "1");
    world.engine.stop_sandbox(&world.who, &which, None).await.unwrap();
    assert_eq!(running(&text(&world).await), "0");
}

#[tokio::test]
async fn totals_over_all_namespaces_are_for_those_who_see_all() {
    let world = World::new().await;
    let spec = KeySpec { namespace: Some("red".parse().unwrap()), ..KeySpec::default() };
    let key = world.engine.create_key(&world.who, spec).await.unwrap();
    let red = world.engine.authenticate_key(&key.secret).await.unwrap();
    let error = world.engine.metrics(&red, MetricsFormat::OpenMetrics).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    world.engine.count_request(
        Frontend::Rest,
        "GET /metrics",
        Some(error.kind().as_str()),
        Default::default(),
    );
    let line = "warren_refused_calls_total{frontend=\"rest\",reason=\"denied\"}";
    assert_eq!(value(&text(&world).await, line), Some(1.0));
}
