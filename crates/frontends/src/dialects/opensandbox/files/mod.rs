//! Files inside a sandbox, as both the tools and `execd` look for them and change them.

mod entries;
mod owners;
mod permissions;
mod remove;
mod rename;
mod replace;

pub(super) use self::{
    entries::{EntryInfo, search},
    owners::Owners,
    permissions::{Permissions, create_directories, set_permissions, write},
    remove::{Removed, remove},
    rename::rename,
    replace::{Replacement, replace},
};
