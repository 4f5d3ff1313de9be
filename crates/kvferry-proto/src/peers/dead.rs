//! Incarnations that never come back.

use std::collections::{HashMap, VecDeque};

use crate::region::Incarnation;

/// How many dead incarnations of one name are remembered.
pub const REMEMBERED_DEATHS: usize = 16;

/// How many names are: metadata may come from strangers.
const REMEMBERED_NAMES: usize = 4096;

/// The last dead incarnations of each name; a name whose last death is longest ago goes first.
#[derive(Debug, Default)]
pub(super) struct DeadList {
    names: HashMap<String, (u64, VecDeque<Incarnation>)>,
    deaths: u64,
}

impl DeadList {
    pub(super) fn contains(&self, name: &str, incarnation: Incarnation) -> bool {
        self.names.get(name).is_some_and(|(_, dead)| dead.contains(&incarnation))
    }

    pub(super) fn insert(&mut self, name: &str, incarnation: Incarnation) {
        if self.contains(name, incarnation) {
            return;
        }
        self.make_room(name);
        self.deaths += 1;
        let (last, dead) = self.names.entry(name.to_owned()).or_default();
        *last = self.deaths;
        if dead.len() == REMEMBERED_DEATHS {
            dead.pop_front();
        }
        dead.push_back(incarnation);
    }

    fn make_room(&mut self, name: &str) {
        if self.names.len() < REMEMBERED_NAMES || self.names.contains_key(name) {
            return;
        }
        let oldest = self.names.iter().min_by_key(|(_, (last, _))| *last);
        if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
            self.names.remove(&oldest);
        }
    }
}
