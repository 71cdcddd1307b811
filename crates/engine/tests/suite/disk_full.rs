//! A host with a full disk: reported clearly, nothing lost, and working again with the first free byte.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use engine::{Follow, SandboxRef};
use futures_util::StreamExt;
use sandbox::{ErrorKind, ExecOutcome, ExecSpec, ExecState, KillReason, SandboxSpec, SandboxState};
use tempfile::TempDir;

use super::support::{EntryKind, World, advice, assert_numbered, bytes, in_time, kinds, seq, text};

/// A small file system of its own; unmounted at the end of the story.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` if we may not mount.
    fn mount(at: &Path) -> Option<Self> {
        let options = ["-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs"];
        let is_mounted =
            Command::new("mount").args(options).arg(at).status().is_ok_and(|status| status.success());
        is_mounted.then(|| Self(at.to_owned()))
    }

    pub(crate) fn fill(&self) {
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        for size in [65536, 4096, 1] {
            while filler.write(&vec![b'x'; size]).is_ok_and(|n| n > 0) {}
        }
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the store may still have files open when a story fails.
        Command::new("umount").arg("-l").arg(&self.0).status().map(drop).unwrap_or_default();
    }
}

pub(crate) async fn world_on_a_small_disk() -> Option<(World, SmallDisk)> {
    let home: TempDir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(home.path()) else {
        println!("skipped: mounting a tmpfs needs CAP_SYS_ADMIN");
        return None;
    };
    Some((World::at(home, |_| {}).await, disk))
}

#[tokio::test]
async fn a_full_disk_refuses_new_sandboxes_and_keeps_the_old_ones() {
    let Some((world, disk)) = world_on_a_small_disk().await else { return };
    let old: SandboxRef = world.create_named("old").await.id.into();
    world.write(&old, "/root/a", "1").await;
    disk.fill();
    let error = in_time(async {
        loop {
            // A write that fits into an existing page succeeds; soon none does.
            match world.engine.create_sandbox(&world.who, SandboxSpec::default()).await {
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(advice(&error).contains("ree") && advice(&error).contains("space"), "{error:?}");
    assert_eq!(world.read(&old, "/root/a").await, "1");
    disk.free();
    let records = world.store.sandboxes(None).await.unwrap().records;
    assert_eq!(records.len(), world.backend.live().len());
    assert!(records.iter().all(|record| record.state == SandboxState::Running), "{records:?}");
    assert_eq!(world.run(&old, "true").await.exit_code, Some(0));
    world.create_named("new").await;
}

#[tokio::test]
async fn output_waits_for_space_and_no_line_is_lost() {
    let Some((world, disk)) = world_on_a_small_disk().await else { return };
    let which = world.create().await;
    let spec = ExecSpec { stdin: true, ..ExecSpec::shell("seq 1000; cat; seq 60000; exit 6") };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    let entries = world.engine.exec_entries(&world.who, &which, &exec.id, 1, Follow::Yes).await.unwrap();
    in_time(entries.take(2).for_each(|item| async move { drop(item.unwrap()) })).await;
    disk.fill();
    // The input that it waited for.
    world.engine.exec_stdin(&world.who, &which, &exec.id, bytes(""), true).await.unwrap();
    // It cannot end: its output cannot be written.
    let time = Some(std::time::Duration::from_millis(400));
    let waiting = world.engine.wait_exec(&world.who, &which, &exec.id, time).await.unwrap();
    assert_eq!(waiting.outcome, None);
    disk.free();
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(6));
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    assert_numbered(&entries);
    assert_eq!(kinds(&entries).last(), Some(&EntryKind::Exited));
    assert!(text(&entries, EntryKind::Stdout) == seq(1000) + &seq(60_000));
}

#[tokio::test]
async fn a_sandbox_can_be_stopped_and_removed_on_a_full_disk_as_far_as_it_goes() {
    let Some((world, disk)) = world_on_a_small_disk().await else { return };
    let which = world.create().await;
    world.start_exec(&which, "sleep 1000").await;
    disk.fill();
    let stopped = in_time(world.engine.stop_sandbox(&world.who, &which, None)).await.unwrap();
    assert_eq!(stopped.state, SandboxState::Stopped);
    assert_eq!(world.backend.live(), []);
    disk.free();
    world.remove(&which).await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn an_end_that_cannot_be_written_is_told_and_written_later() {
    let Some((world, disk)) = world_on_a_small_disk().await else { return };
    let which = world.create().await;
    let spec = ExecSpec {
        stdin: true,
        ..ExecSpec::shell("echo begun; cat; seq 10000; touch /tmp/printed; sleep 1000")
    };
    let printing = world.engine.exec(&world.who, &which, spec).await.unwrap();
    let entries = world.engine.exec_entries(&world.who, &which, &printing.id, 1, Follow::Yes).await.unwrap();
    in_time(entries.take(2).for_each(|item| async move { drop(item.unwrap()) })).await;
    let sleeping = world.start_exec(&which, "sleep 1000").await;
    disk.fill();
    world.engine.exec_stdin(&world.who, &which, &printing.id, bytes(""), true).await.unwrap();
    in_time(async {
        while world.engine.stat(&world.who, &which, "/tmp/printed", true).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    in_time(world.engine.stop_sandbox(&world.who, &which, None)).await.unwrap();
    for exec in [&printing.id, &sleeping.id] {
        let view = world.engine.exec_view(&world.who, &which, exec).await.unwrap();
        assert_eq!((view.state, view.exit_code), (ExecState::Done, Some(137)), "{view:?}");
    }
    // The next daemon knows it too, once there was space for a moment.
    disk.free();
    in_time(async {
        for exec in [&printing.id, &sleeping.id] {
            while world.store.exec(exec.clone()).await.unwrap().unwrap().state != ExecState::Done {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let world = world.crash().await;
    let view = world.wait(&which, &sleeping.id).await;
    assert_eq!(view.outcome, Some(ExecOutcome::Killed { reason: KillReason::SandboxStopped }));
    // Output printed while there was no space is missing, and that is reported.
    let entries = world.engine.exec_entries(&world.who, &which, &printing.id, 1, Follow::Yes).await.unwrap();
    let entries: Vec<_> = in_time(entries.collect()).await;
    let errors: Vec<_> = entries.iter().filter_map(|item| item.as_ref().err()).collect();
    assert!(errors.len() == 1 && errors[0].to_string().contains("lost"), "{errors:?}");
}
