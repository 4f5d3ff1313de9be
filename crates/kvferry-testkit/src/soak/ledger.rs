//! Which notifications were issued, and which came: each at most once, bare ones in their order, those of done transfers for
//! certain, those of cancelled ones never.

use std::collections::HashMap;

use crate::harness::Received;

/// How long the notifications of a round are remembered, in rounds.
const REMEMBERED: u64 = 200;

/// What a notification of a transfer is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It may come or not: its link broke.
    May,
    /// It must have come.
    Must,
    /// It must never come.
    Never,
}

#[derive(Debug)]
struct Entry {
    round: u64,
    due: Due,
    came: bool,
}

/// The notifications from one agent to another.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    transfers: HashMap<String, Entry>,
    /// The number of the next bare one.
    next: u64,
    /// The number that the next bare one to come has at least.
    awaited: u64,
}

/// A bare notification that came: when it was issued and when it was there, in nanoseconds.
pub(super) type Bare = (u64, u64);

impl Ledger {
    /// Takes note of a transfer's notification; returns what it says.
    pub(super) fn issue(&mut self, round: u64, transfer: usize) -> String {
        self.transfers.retain(|_, entry| entry.round + REMEMBERED > round);
        let text = format!("transfer {round}.{transfer}");
        self.transfers.insert(text.clone(), Entry { round, due: Due::May, came: false });
        text
    }

    /// Sets numbers aside for so many bare ones; returns the first.
    pub(super) fn reserve(&mut self, count: u64) -> u64 {
        self.next += count;
        self.next - count
    }

    /// Takes note of what has become of a transfer.
    pub(super) fn settle(&mut self, text: &str, due: Due) {
        if let Some(entry) = self.transfers.get_mut(text) {
            entry.due = due;
        }
    }

    /// Whom it was meant for is gone: it must not come to anybody else.
    pub(super) fn forget(&mut self, text: &str) {
        self.transfers.remove(text);
    }

    /// Takes in what came, and returns the times of the bare ones.
    ///
    /// # Panics
    /// Something came twice, out of order, or from nowhere.
    pub(super) fn hear(&mut self, from: &str, received: &[Received]) -> Vec<Bare> {
        received.iter().filter_map(|told| self.hear_one(from, told)).collect()
    }

    fn hear_one(&mut self, from: &str, told: &Received) -> Option<Bare> {
        let Received { from: sender, payload, stamp } = told;
        assert_eq!(sender, from, "expected a notification of {from:?}, found {payload:?} of {sender:?}");
        if let Some(rest) = payload.strip_prefix("bare ") {
            let mut numbers = rest.split(' ').map_while(|number| number.parse::<u64>().ok());
            let (Some(number), Some(issued)) = (numbers.next(), numbers.next()) else {
                panic!("expected a bare notification with number and time, found {payload:?}");
            };
            assert!(
                (self.awaited..self.next).contains(&number),
                "expected a bare notification from number {} on and below {}, found {number}: twice or out of order",
                self.awaited,
                self.next
            );
            self.awaited = number + 1;
            return Some((issued, *stamp));
        }
        let Some(entry) = self.transfers.get_mut(payload) else {
            panic!("a notification that nobody issued: {payload:?}");
        };
        assert!(!entry.came, "expected {payload:?} at most once, and it came again");
        assert!(entry.due != Due::Never, "expected no {payload:?}: that transfer did not come to its end");
        entry.came = true;
        None
    }

    /// Makes sure that of a round everything came that must have, and nothing that must not.
    ///
    /// # Panics
    /// It is not so.
    pub(super) fn check(&self, round: u64) {
        for (text, entry) in self.transfers.iter().filter(|(_, entry)| entry.round == round) {
            assert!(
                entry.due != Due::Must || entry.came,
                "expected the notification {text:?}: it has not come"
            );
            assert!(
                entry.due != Due::Never || !entry.came,
                "expected no {text:?}: its transfer was cancelled"
            );
        }
    }

    /// How many of a round must have come and have not.
    pub(super) fn missing(&self, round: u64) -> usize {
        let missing = |entry: &&Entry| entry.round == round && entry.due == Due::Must && !entry.came;
        self.transfers.values().filter(missing).count()
    }
}

#[cfg(test)]
mod tests;
