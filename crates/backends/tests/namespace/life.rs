//! From creation to the end.

use std::sync::Arc;

use sandbox::Backend as _;

use crate::world::{World, sh};

pub(crate) async fn a_sandbox_is_made_runs_a_command_and_goes(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let output = sh(&*instance, "echo hello from $(hostname); id; ls /; cat /proc/1/comm").await;
    println!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.code(), Some(0));
    instance.stop().await.unwrap();
    instance.stop().await.unwrap();
    instance.ended().await;
    world.backend.remove_files(&plan.id, plan.directory.clone()).await.unwrap();
    assert!(!plan.directory.exists());
}
