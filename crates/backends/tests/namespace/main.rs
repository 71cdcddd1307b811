//! The namespace back end on the real kernel, as root and as ordinary users.
//!
//! Run as root, it runs everything, then itself again as users without privileges: one with a single id, one with
//! subordinate ids. Arguments choose stories by a part of their names; `--exact` chooses a user.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test without the standard harness, which is how clippy knows tests"
)]

#[path = "../support/arguments.rs"]
mod arguments;
#[path = "../support/client.rs"]
mod client;
mod escape;
#[path = "../support/guest.rs"]
mod forked;
mod hostile;
mod kernel;
mod life;
mod limits;
mod mounts;
mod network;
mod pool;
mod trees;
mod world;

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    pin::Pin,
    process::{Command, ExitCode},
    sync::Arc,
    time::Instant,
};

use arguments::Arguments;
use backends::namespace::{Directories, NamespaceBackend, PoolConfig};
use world::World;

type Story = (&'static str, fn(Arc<World>) -> Pin<Box<dyn Future<Output = ()> + Send>>);

/// Tells a run as another user which one that is.
pub(crate) const WHO: &str = "WARREN_TEST_WHO";

#[macro_export]
macro_rules! stories {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((stringify!($name), |world| Box::pin($module::$name(world)))),*]
    };
}

const STORIES: &[Story] = stories![
    life::a_sandbox_is_made_runs_a_command_and_goes,
    life::a_stopped_sandbox_keeps_its_files,
    life::nothing_is_left_on_the_host,
    life::a_sandbox_that_ends_by_itself_is_noticed,
    life::a_new_daemon_finds_what_lives_and_sweeps_the_rest,
    life::a_daemon_with_another_home_leaves_ours_alone,
    life::a_dead_spawner_is_replaced_and_sandboxes_live_on,
    life::a_guest_without_a_run_directory_is_found_and_ended,
    life::what_a_removal_that_was_cut_short_left_is_swept,
    life::our_own_program_cannot_be_changed_from_inside,
    life::a_create_that_is_given_up_leaves_no_guest,
    life::a_recycled_pid_is_never_taken_for_a_guest,
    life::a_create_that_fails_leaves_nothing,
    life::a_root_with_any_name,
    life::many_at_once,
    life::what_is_needed_is_found_by_trying,
    life::a_plan_can_be_explained,
    escape::capabilities_are_few_and_cannot_grow,
    escape::dangerous_calls_are_refused,
    escape::the_kernels_files_are_masked_or_read_only,
    escape::device_nodes_are_nobody_elses_where_they_can_be_made,
    escape::the_hosts_files_are_not_there,
    escape::only_loopback_and_only_its_own_processes,
    escape::the_guest_cannot_be_looked_into_or_killed,
    escape::root_inside_is_nobody_outside,
    escape::usr_is_writable_inside_and_untouched_outside,
    hostile::a_link_that_changes_its_meaning_leads_nowhere,
    hostile::a_mount_on_the_root_itself_is_refused,
    hostile::random_trees_touch_nothing_outside,
    limits::a_memory_hog_dies_and_the_guest_lives,
    limits::a_fork_bomb_stays_inside,
    limits::sizes_of_the_small_file_systems_hold,
    limits::cpu_time_is_held_where_it_can_be,
    limits::a_hard_disk_limit_is_a_file_system,
    limits::a_disk_filler_is_stopped_by_accounting,
    limits::a_deep_tree_is_measured_to_its_bottom,
    limits::empty_files_are_not_free,
    limits::deleted_files_count_while_they_are_open,
    limits::deleted_files_count_while_they_are_mapped,
    limits::a_deaf_guest_does_not_save_a_disk_filler,
    limits::a_paused_sandbox_stands_still_and_goes_on,
    limits::usage_is_told,
    limits::the_statement_matches_the_host,
    kernel::what_is_counted_per_user_is_the_sandboxs_own,
    kernel::netlink_sockets_are_few_and_small,
    kernel::what_hosts_write_counts_as_the_sandboxs_memory,
    kernel::buffers_of_sockets_are_held,
    kernel::what_the_whole_host_shares_is_refused,
    kernel::foreign_system_calls_are_refused,
    network::programs_reach_whoever_holds_the_sockets,
    network::what_serves_a_network_may_come_later_and_again,
    network::without_a_policy_that_needs_it_there_is_no_network,
    network::the_sockets_of_a_network_are_out_of_reach_inside,
    network::a_network_takes_nothing_of_the_budget_for_sockets,
    network::a_network_is_made_quickly,
    mounts::a_volume_is_shared_and_outlives_its_sandboxes,
    mounts::ids_inside_are_kept_in_a_volume,
    mounts::read_only_noexec_and_nosuid_hold_for_root_inside,
    mounts::a_single_file_and_mounts_in_mounts,
    mounts::links_at_the_place_of_a_mount_stay_inside,
    mounts::a_host_path_that_is_another_file_by_now_is_refused,
    mounts::the_quota_of_a_volume_holds,
    mounts::a_disk_volume_is_one_file_system_for_all,
    mounts::a_volume_is_shown_without_a_sandbox,
    mounts::many_mounts_fit,
    trees::a_copy_is_what_the_sandbox_changed,
    trees::a_paused_sandbox_with_a_disk_of_its_own_is_copied_and_so_is_a_stopped_one,
    trees::a_copy_that_nobody_waits_for_does_no_harm,
    trees::a_sandbox_that_cannot_be_held_is_not_copied,
    trees::a_small_sandbox_is_copied_quickly,
    trees::changes_are_told,
    trees::changes_on_a_disk_of_its_own_are_told,
    trees::what_is_packed_is_a_tree_again,
    trees::an_archive_that_is_no_tree_of_a_sandbox_is_refused,
];

/// Stories of places that are made before their sandboxes are asked for.
const POOL_STORIES: &[Story] = stories![
    pool::a_place_becomes_the_sandbox_that_asks,
    pool::a_place_is_for_sandboxes_of_its_shape,
    pool::a_place_that_cannot_be_used_is_replaced,
    pool::a_pool_that_is_closed_leaves_nothing,
    life::a_sandbox_is_made_runs_a_command_and_goes,
    life::a_stopped_sandbox_keeps_its_files,
    life::nothing_is_left_on_the_host,
    life::a_new_daemon_finds_what_lives_and_sweeps_the_rest,
    escape::capabilities_are_few_and_cannot_grow,
    escape::dangerous_calls_are_refused,
    escape::the_kernels_files_are_masked_or_read_only,
    escape::device_nodes_are_nobody_elses_where_they_can_be_made,
    escape::the_hosts_files_are_not_there,
    escape::only_loopback_and_only_its_own_processes,
    escape::the_guest_cannot_be_looked_into_or_killed,
    escape::root_inside_is_nobody_outside,
    escape::usr_is_writable_inside_and_untouched_outside,
    limits::usage_is_told,
    limits::the_statement_matches_the_host,
    trees::changes_are_told,
];

/// The group of the stories above.
const POOL: &str = "pool";

/// A user, and how the host is for them.
struct Setting {
    name: &'static str,
    /// The content of `/etc/subuid` and `/etc/subgid`.
    subordinate: Option<&'static str>,
    /// Namespaces of its own, as `unshare` calls them.
    apart: &'static [&'static str],
    /// Done before, in those.
    before: &'static str,
    /// The only story, if there is one.
    only: Option<&'static str>,
}

const OTHER_SETTINGS: &[Setting] = &[
    Setting { name: "single_id", subordinate: None, apart: &["--mount"], before: "true", only: None },
    Setting {
        name: "subordinate_ids",
        subordinate: Some("65534:200000:65536"),
        apart: &["--mount"],
        before: "true",
        only: None,
    },
    // The kernel treats a /usr with submounts differently; one story shows whether it works at all.
    Setting {
        name: "mounts_beneath_usr",
        subordinate: None,
        apart: &["--mount"],
        before: "mount -t tmpfs none /usr/games",
        only: Some("a_sandbox_is_made_runs_a_command_and_goes"),
    },
    // Sandboxes have IPv6 where the host has a route for it, whether or not anybody is there.
    Setting {
        name: "ipv6",
        subordinate: None,
        apart: &["--mount", "--net"],
        before: "ip link set lo up && ip -6 route add local default dev lo",
        only: Some("programs_reach_whoever_holds_the_sockets"),
    },
];

fn main() -> ExitCode {
    jail::run_spawner_role(forked::forked_guest, backends::namespace::worker);
    let here = std::env::var(WHO).unwrap_or_else(|_unset| "here".to_owned());
    let is_first = rustix::process::geteuid().is_root() && std::env::var_os(WHO).is_none();
    let others = if is_first { OTHER_SETTINGS } else { &[] };
    let mut groups = vec![here.clone(), POOL.to_owned()];
    groups.extend(others.iter().map(|setting| setting.name.to_owned()));
    let Some(arguments) = Arguments::read(&groups) else { return ExitCode::SUCCESS };

    let mut is_ok = !arguments.wants_group(&here) || run_here(&here, STORIES, &arguments);
    // Without root, ids and files are other ones; one such user is enough.
    let is_other = here == "subordinate_ids" && arguments.wants_group(&here);
    is_ok &= !(is_other || arguments.wants_group(POOL)) || run_here(POOL, POOL_STORIES, &arguments);
    for setting in others.iter().filter(|setting| arguments.wants_group(setting.name)) {
        is_ok &= setting.run(&arguments);
    }
    if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the stories in this process; returns whether all went well.
fn run_here(who: &str, stories: &[Story], arguments: &Arguments) -> bool {
    let place = tempfile::Builder::new().prefix("warren-test-").tempdir().unwrap();
    let directories = Directories { home: place.path().join("home"), run: place.path().join("run") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut backend = runtime.block_on(NamespaceBackend::new(directories.clone(), None)).unwrap();
    let has_pool = who == POOL;
    if has_pool {
        backend = backend.with_pool(PoolConfig { size: 2, from_rate: 1 });
    }
    let world = Arc::new(World { backend, directories, has_pool });
    let mut n_failed = 0;
    for (name, story) in stories.iter().filter(|(name, _)| arguments.wants_story(name)) {
        let began = Instant::now();
        let told = std::panic::catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async { tokio::spawn(story(Arc::clone(&world))).await })
        }));
        let is_ok = matches!(told, Ok(Ok(())));
        let result = if is_ok { "ok" } else { "FAILED" };
        println!("test {who}::{name} ... {result} ({} ms)", began.elapsed().as_millis());
        n_failed += usize::from(!is_ok);
    }
    drop(world);
    runtime.shutdown_timeout(std::time::Duration::from_secs(10));
    n_failed == 0
}

impl Setting {
    /// Runs this program again as `nobody`, in namespaces of its own.
    fn run(&self, arguments: &Arguments) -> bool {
        if self.only.is_some_and(|story| !arguments.wants_story(story)) {
            return true;
        }
        let place = tempfile::Builder::new().prefix("warren-user-").tempdir().unwrap();
        let own = place.path().join("own");
        std::fs::create_dir(&own).unwrap();
        std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
        std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut script =
            format!("{} && exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"", self.before);
        if let Some(range) = self.subordinate {
            if !["newuidmap", "newgidmap"].iter().all(|program| find_program(program).is_some()) {
                println!("skipped: {} needs newuidmap and newgidmap", self.name);
                return true;
            }
            let file = place.path().join("subids");
            std::fs::write(&file, format!("{range}\n")).unwrap();
            let file = file.display();
            script =
                format!("mount --bind {file} /etc/subuid && mount --bind {file} /etc/subgid && {script}");
        }
        let mut command = Command::new("unshare");
        command.args(self.apart).args(["sh", "-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
        match self.only {
            Some(story) => command.arg(story),
            None => command.args(arguments.for_group(self.name)),
        };
        command.env("TMPDIR", &own).env("HOME", &own).env(WHO, self.name).current_dir("/");
        command.status().unwrap().success()
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| Path::is_file(file))
}
