//! What happens in a round, and over which way.

use std::{fmt, time::Duration};

use serde::Serialize;

use crate::harness::{Chance, Memory};

/// How bytes move between the two agents of a rig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// Private memory of one host, by cross-memory attach.
    Cma,
    /// kvferry's memory at the target, mapped by the initiator.
    Map,
    /// kvferry's memory at the initiator, mapped by the target, which copies.
    MapByTarget,
    /// Over loopback, through a proxy.
    Tcp,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Cma, Self::Map, Self::MapByTarget, Self::Tcp];

    /// The memory of the initiator, and of the target.
    pub(super) const fn memories(self) -> [Memory; 2] {
        match self {
            Self::Cma | Self::Tcp => [Memory::Private, Memory::Private],
            Self::Map => [Memory::Private, Memory::Shared],
            Self::MapByTarget => [Memory::Shared, Memory::Private],
        }
    }

    /// Path and mechanism as the engine names them.
    pub(super) const fn route(self) -> (&'static str, &'static str) {
        match self {
            Self::Cma => ("same_host", "cma"),
            Self::Map | Self::MapByTarget => ("same_host", "map"),
            Self::Tcp => ("tcp", "stream"),
        }
    }

    /// Words that a transfer which ended early may leave half old and half new: a stream ends at any byte, and there are two.
    pub(super) const fn torn(self) -> u64 {
        if self.is_tcp() { 2 } else { 0 }
    }

    pub(super) const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cma => "same_host cma",
            Self::Map => "same_host map",
            Self::MapByTarget => "same_host map by target",
            Self::Tcp => "tcp",
        })
    }
}

/// What is done to a transfer in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    /// Nothing: all of it arrives.
    Whole,
    Cancel,
    Release,
    /// Whoever is written to takes its memory back.
    DeregisterPool,
    /// Whoever is read from does.
    DeregisterSource,
    /// The initiator parts.
    DisconnectHere,
    /// The target parts.
    DisconnectThere,
    /// SIGKILL, and a new process of that name.
    KillTarget,
    KillInitiator,
    /// A new process takes the target's name while the old one lives.
    Replace,
    /// SIGSTOP of the target, a cancel, SIGCONT.
    Stop,
    /// RST of all connections.
    Reset,
    /// RST of one data stream.
    ResetOne,
    /// FIN of all connections.
    Finish,
    /// The initiator's ends are closed, the target's are open, and bytes are still on their way.
    HalfOpen,
    /// Everything is lost on the way.
    Silence,
}

/// Acts of any way and their weights: what costs a process comes less often.
const ANYWHERE: [(Act, u64); 11] = [
    (Act::Whole, 12),
    (Act::Cancel, 12),
    (Act::Release, 8),
    (Act::DeregisterPool, 10),
    (Act::DeregisterSource, 5),
    (Act::DisconnectHere, 4),
    (Act::DisconnectThere, 4),
    (Act::KillTarget, 5),
    (Act::KillInitiator, 5),
    (Act::Replace, 3),
    (Act::Stop, 6),
];

/// Acts of a wire.
const ON_THE_WIRE: [(Act, u64); 5] =
    [(Act::Reset, 6), (Act::ResetOne, 4), (Act::Finish, 5), (Act::HalfOpen, 4), (Act::Silence, 3)];

impl Act {
    /// One that is possible on `way`.
    pub(super) fn choose(way: Way, chance: &mut Chance) -> Self {
        let wire = if way.is_tcp() { &ON_THE_WIRE[..] } else { &[] };
        let choices = || ANYWHERE.iter().chain(wire);
        let mut at = chance.below(choices().map(|(_, weight)| weight).sum());
        for (act, weight) in choices() {
            match at.checked_sub(*weight) {
                Some(left) => at = left,
                None => return *act,
            }
        }
        Self::Whole
    }

    /// Whether no link breaks and no process ends: all notifications arrive.
    pub(super) const fn is_gentle(self) -> bool {
        matches!(
            self,
            Self::Whole | Self::Cancel | Self::Release | Self::DeregisterPool | Self::DeregisterSource
        )
    }

    /// How a transfer may end: codes of failures, or `done` and `cancelled`. `main` is the one that the act is aimed at.
    pub(super) fn endings(self, way: Way, main: bool) -> &'static [&'static str] {
        match self {
            Self::Cancel | Self::Stop if main => &["done", "cancelled"],
            Self::DeregisterPool if main => &["done", "region.revoked"],
            Self::Whole | Self::Cancel | Self::Release | Self::Stop | Self::DeregisterPool => &["done"],
            Self::DeregisterSource => &["done", "region.revoked"],
            Self::DisconnectHere | Self::DisconnectThere | Self::Silence => &["done", "peer.lost"],
            Self::KillTarget if way.is_tcp() => &["done", "peer.lost", "link.lost"],
            Self::KillTarget | Self::KillInitiator => &["done", "peer.lost"],
            Self::Replace if way.is_tcp() => &["done", "peer.restarted", "peer.lost", "link.lost"],
            Self::Replace => &["done", "peer.restarted", "peer.lost"],
            Self::Reset | Self::ResetOne | Self::Finish => &["done", "link.lost"],
            Self::HalfOpen => &["done", "link.lost", "peer.lost"],
        }
    }

    /// Whether a release may answer that nobody knows what the other end still takes in.
    pub(super) const fn may_be_fenced(self, way: Way) -> bool {
        way.is_tcp()
            && matches!(
                self,
                Self::DisconnectHere | Self::KillTarget | Self::Replace | Self::HalfOpen | Self::Silence
            )
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Whole => "nothing: all arrives",
            Self::Cancel => "cancel",
            Self::Release => "release",
            Self::DeregisterPool => "deregister what is written",
            Self::DeregisterSource => "deregister what is read",
            Self::DisconnectHere => "disconnect by the initiator",
            Self::DisconnectThere => "disconnect by the target",
            Self::KillTarget => "kill -9 of the target",
            Self::KillInitiator => "kill -9 of the initiator",
            Self::Replace => "restart before the old one ends",
            Self::Stop => "SIGSTOP, cancel, SIGCONT",
            Self::Reset => "RST of all connections",
            Self::ResetOne => "RST of one stream",
            Self::Finish => "FIN of all connections",
            Self::HalfOpen => "half-open connections",
            Self::Silence => "everything dropped",
        })
    }
}

/// All that is random in a round; it follows from the seed and the number of the round.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) round: u64,
    pub(super) way: Way,
    pub(super) act: Act,
    pub(super) write: bool,
    pub(super) block: u64,
    /// Of each transfer the blocks `(from, to)`. The first goes to the main pool and is what the act is aimed at, the others
    /// share the side pool.
    pub(super) transfers: Vec<Vec<(u32, u32)>>,
    /// Which of them notify.
    pub(super) notify: Vec<bool>,
    /// Bare notifications beside, and microseconds between them.
    pub(super) chatter: (u64, u64),
    /// When the act comes, as a share of the time that a whole transfer takes.
    pub(super) moment: f64,
    /// Where in a block a mark is set.
    pub(super) mark: u64,
    /// How long the memory is watched.
    pub(super) watch: Duration,
}

impl Draft {
    /// What round `round` of `seed` does with pools of that many bytes.
    pub(super) fn new(seed: u64, round: u64, main: u64, side: u64) -> Self {
        let mut chance = Chance::new(Chance::new(seed ^ round.rotate_left(32)).next_u64());
        let way = Way::ALL[chance.below(4) as usize];
        let act = Act::choose(way, &mut chance);
        let block = [4, 16, 64, 256][chance.below(4) as usize] << 10;
        let (all, beside) = ((main / block) as u32, (side / block) as u32);
        // Some blocks stay out of it: nothing may change there.
        let used = all / 2 + chance.below(u64::from(all) / 2 - 1) as u32;
        let mut first = chance.pairs(all);
        first.truncate(used as usize);
        let mut transfers = vec![first];
        let bystanders = chance.below(4) as usize;
        if bystanders > 0 {
            let mut others: Vec<(u32, u32)> =
                chance.shuffled(beside).into_iter().map(|to| (chance.below(all.into()) as u32, to)).collect();
            others.truncate(beside as usize * 3 / 4);
            transfers.extend(others.chunks(others.len().div_ceil(bystanders)).map(<[_]>::to_vec));
        }
        // The end of one that waits for a stopped peer is another matter.
        let notify =
            (0..transfers.len()).map(|i| chance.below(2) == 1 && !(i == 0 && act == Act::Stop)).collect();
        let chatter =
            if chance.below(2) == 1 { (10 + chance.below(30), 100 + chance.below(900)) } else { (0, 0) };
        Self {
            round,
            way,
            act,
            write: chance.below(2) == 1,
            block,
            transfers,
            notify,
            chatter,
            moment: chance.below(1_100) as f64 / 1_000.0,
            mark: 8 * chance.below(block / 8),
            watch: Duration::from_millis(if chance.below(16) == 0 { 300 } else { 20 }),
        }
    }
}

#[cfg(test)]
mod tests;
