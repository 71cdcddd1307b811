//! Living guests that no file records: found through the kernel and ended.

use std::collections::HashMap;

use jail::{
    ProcessOwner,
    cgroup::{Cgroups, Version},
};
use rustix::process::geteuid;
use sandbox::SandboxId;

use super::{ids, instance, sweep};

/// Pids and start times of guests, by sandbox. There is one for each, unless something went wrong.
pub(crate) type Guests = HashMap<SandboxId, Vec<(i32, u64)>>;

/// All living guests with this mark.
pub(crate) fn find(mark: &str, cgroups: &Cgroups) -> Guests {
    let mut guests = Guests::new();
    for guest in jail::find_guests(mark, |owner| is_ours(owner, mark, cgroups)) {
        if let Ok(id) = guest.name.parse() {
            guests.entry(id).or_default().push((guest.pid, guest.start_time));
        }
    }
    guests
}

/// Whether a process that looks like our guest can be one: nobody else puts processes into our cgroups, or runs them as
/// our users.
fn is_ours(owner: &ProcessOwner, mark: &str, cgroups: &Cgroups) -> bool {
    if cgroups.version() != Version::None {
        let group = format!("/{mark}/");
        return owner.cgroups.lines().any(|line| line.contains(&group));
    }
    let own = geteuid().as_raw();
    owner.user == own || (own == 0 && ids::is_given_out(owner.user))
}

/// Kills these guests and waits for their end.
pub(crate) async fn end(guests: &[(i32, u64)]) -> sweep::Ended {
    let mut ended = sweep::Ended::Yes;
    for (pid, start_time) in guests {
        if let Some(handle) = instance::find_process(*pid, *start_time)
            && sweep::kill_and_wait(handle).await == sweep::Ended::No
        {
            ended = sweep::Ended::No;
        }
    }
    ended
}
