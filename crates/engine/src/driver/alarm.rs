//! Wakes a driver at a moment of the engine's clock.

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use crate::clock::Clock;

#[derive(Default)]
pub(super) struct Alarm(Option<(Timestamp, BoxFuture<'static, ()>)>);

impl Alarm {
    /// Sets it to the moment, or off.
    pub(super) fn set(&mut self, clock: &dyn Clock, at: Option<Timestamp>) {
        let Some(at) = at else {
            self.0 = None;
            return;
        };
        // An early alarm does no harm: it is set again.
        if self.0.as_ref().is_none_or(|(set, _)| *set > at) {
            self.0 = Some((at, clock.sleep_until(at)));
        }
    }

    /// Returns at the moment that it is set to; never while it is off.
    pub(super) async fn rings(&mut self) {
        match &mut self.0 {
            Some((_, moment)) => {
                moment.await;
                self.0 = None;
            }
            None => std::future::pending().await,
        }
    }
}
