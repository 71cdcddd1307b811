//! Events that the host has not acknowledged yet.

use std::collections::VecDeque;

use guest_protocol::ExecEvent;

use crate::limits::EVENT_OVERHEAD_BYTES;

/// A run of events with consecutive numbers, starting after the last acknowledged one.
#[derive(Debug, Default)]
pub(crate) struct Window {
    events: VecDeque<ExecEvent>,
    acked: u64,
    bytes: usize,
}

fn cost(event: &ExecEvent) -> usize {
    EVENT_OVERHEAD_BYTES
        + match event {
            ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) | ExecEvent::Rich(bytes) => bytes.len(),
            _ => 0,
        }
}

impl Window {
    /// Appends an event and returns its cost.
    pub(crate) fn push(&mut self, event: ExecEvent) -> usize {
        let cost = cost(&event);
        self.bytes += cost;
        self.events.push_back(event);
        cost
    }

    /// Forgets everything up to `number` and returns its cost. Numbers beyond the last event count as the last one.
    pub(crate) fn ack(&mut self, number: u64) -> usize {
        let mut freed = 0;
        while self.acked < number
            && let Some(event) = self.events.pop_front()
        {
            self.acked += 1;
            freed += cost(&event);
        }
        self.bytes -= freed;
        if self.events.is_empty() {
            // An idle exec holds no memory for output.
            self.events = VecDeque::new();
        }
        freed
    }

    pub(crate) fn event(&self, number: u64) -> Option<&ExecEvent> {
        let position = number.checked_sub(self.acked + 1)?;
        self.events.get(usize::try_from(position).ok()?)
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// Number of the last event so far.
    pub(crate) fn last(&self) -> u64 {
        self.acked + self.events.len() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &'static str) -> ExecEvent {
        ExecEvent::Stdout(text.as_bytes().into())
    }

    #[test]
    fn numbers_stay_with_their_events() {
        let mut window = Window::default();
        for text in ["a", "b", "c"] {
            window.push(output(text));
        }
        window.ack(1);
        assert_eq!((window.acked(), window.last()), (1, 3));
        assert_eq!((window.event(1), window.event(2)), (None, Some(&output("b"))));
        assert_eq!((window.event(0), window.event(4)), (None, None));
    }

    #[test]
    fn acknowledging_frees_exactly_what_was_held() {
        let mut window = Window::default();
        let held: usize = ["", "xy"].into_iter().map(|text| window.push(output(text))).sum();
        assert_eq!(window.bytes(), held);
        assert_eq!(window.ack(u64::MAX), held);
        assert_eq!((window.bytes(), window.acked(), window.last()), (0, 2, 2));
        assert_eq!(window.ack(1), 0);
    }
}
