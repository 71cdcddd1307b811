//! The command's side of a build: sends the context to the daemon, and shows the progress that comes back.

mod pack;
mod show;

pub(crate) use self::{
    pack::{Packing, Trouble, pack},
    show::Show,
};
