//! Prints the cost of each part of making a sandbox here: `cargo run -p backends --example create_cost [runs]`.
#![expect(clippy::expect_used, clippy::print_stdout, reason = "a tool for people at a terminal")]

#[path = "../tests/support/guest.rs"]
mod forked;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use backends::namespace::{Directories, NamespaceBackend};
use sandbox::{Backend as _, Defaults, SandboxId, SandboxPlan, SandboxSpec};

fn plan(number: u64) -> SandboxPlan {
    let id = SandboxId::from_random((number | u64::from(std::process::id()) << 32).to_be_bytes());
    let name = "box".parse().expect("a name");
    sandbox::plan(
        &id,
        &name,
        &SandboxSpec::default(),
        &Defaults::default(),
        &sandbox::Base::host(),
        &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
    )
    .expect("a plan")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    jail::run_spawner_role(forked::forked_guest, backends::namespace::worker);
    let runs: u64 = std::env::args().nth(1).map_or(Ok(200), |word| word.parse())?;
    let place = tempfile::tempdir()?;
    let mut floor = Vec::new();
    for number in 0..runs {
        let scratch = place.path().join(format!("floor-{number}"));
        std::fs::create_dir(&scratch)?;
        floor.push(jail::run_bare("/bin/true".as_ref(), &[], &["/usr".into()], &scratch)?);
        std::fs::remove_dir_all(&scratch)?;
    }
    floor.sort_unstable();
    println!(
        "{:>9.3} ms  floor: bare namespaces, overlay, exec of true",
        floor[floor.len() / 2].as_secs_f64() * 1000.0
    );
    let directories = Directories { home: place.path().join("home"), run: place.path().join("run") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let began = Instant::now();
        let backend = NamespaceBackend::new(directories, None).await?;
        println!("{:>9.3} ms  new", began.elapsed().as_secs_f64() * 1000.0);
        let mut times: BTreeMap<(usize, String), Vec<Duration>> = BTreeMap::new();
        for number in 0..runs {
            let plan = plan(number);
            let began = Instant::now();
            let (instance, costs) = backend.create_measured(&plan).await?;
            let total = began.elapsed();
            let connected = Instant::now();
            let mut stream = instance.connect().await?;
            tokio::io::AsyncReadExt::read_u8(&mut stream).await?;
            let hello = connected.elapsed();
            let stopping = Instant::now();
            instance.stop().await?;
            let stop = stopping.elapsed();
            let removing = Instant::now();
            backend.remove(&plan.id).await?;
            let all = [
                ("total", total),
                ("begin", costs.begin),
                ("cage", costs.cage),
                ("hello", hello),
                ("stop", stop),
                ("remove", removing.elapsed()),
            ];
            for (position, (name, time)) in all.into_iter().enumerate() {
                times.entry((position, name.to_owned())).or_default().push(time);
            }
            for (position, (name, time)) in costs.steps.into_iter().enumerate() {
                times.entry((position + 10, format!("  {name}"))).or_default().push(time);
            }
        }
        for ((_, name), mut times) in times {
            times.sort_unstable();
            let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
            println!("{:>9.3} ms p50 {:>9.3} p95  {name}", at(50), at(95));
        }
        burst(&backend).await
    })
}

async fn burst(backend: &NamespaceBackend) -> Result<(), Box<dyn std::error::Error>> {
    let plans: Vec<_> = (0..100).map(|number| plan(1_000_000 + number)).collect();
    let began = Instant::now();
    let made = futures_util::future::join_all(plans.iter().map(|plan| backend.create(plan))).await;
    println!("{:>9.3} ms  burst of 100", began.elapsed().as_secs_f64() * 1000.0);
    let began = Instant::now();
    let stopped = made.into_iter().map(|instance| async { instance?.stop().await });
    for stopped in futures_util::future::join_all(stopped).await {
        stopped?;
    }
    println!("{:>9.3} ms  stop of 100", began.elapsed().as_secs_f64() * 1000.0);
    for plan in &plans {
        backend.remove(&plan.id).await?;
    }
    Ok(())
}
