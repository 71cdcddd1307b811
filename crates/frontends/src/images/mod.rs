//! What all front ends share about images: how far a pull is, and how a registry is asked.

mod asked;
mod pulling;

pub use self::asked::Password;
pub(crate) use self::{
    asked::{Registry, reference},
    pulling::{Fact, Pulling},
};
