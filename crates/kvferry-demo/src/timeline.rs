//! When something ran: spans of time, their union, and what of it overlapped something else.

use std::time::Duration;

use crate::stamp::Stamp;

/// Spans in which one kind of work went on; they may overlap.
#[derive(Debug, Default, Clone)]
pub(crate) struct Timeline(Vec<(Stamp, Stamp)>);

impl Timeline {
    /// Adds a span.
    pub(crate) fn push(&mut self, from: Stamp, to: Stamp) {
        if from < to {
            self.0.push((from, to));
        }
    }

    /// Time in which at least one span ran.
    pub(crate) fn busy(&self) -> Duration {
        self.merged().iter().map(|(from, to)| to.since(*from)).sum()
    }

    /// Time in which both this and `other` ran.
    pub(crate) fn overlap(&self, other: &Self) -> Duration {
        let others = other.merged();
        self.merged()
            .iter()
            .flat_map(|(from, to)| {
                others.iter().map(move |(start, end)| (*to.min(end)).since(*from.max(start)))
            })
            .sum()
    }

    /// Disjoint spans in order.
    fn merged(&self) -> Vec<(Stamp, Stamp)> {
        let mut spans = self.0.clone();
        spans.sort_unstable();
        let mut merged: Vec<(Stamp, Stamp)> = Vec::with_capacity(spans.len());
        for (from, to) in spans {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests;
