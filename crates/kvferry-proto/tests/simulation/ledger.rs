//! What an observer of all processes knows, and the promises that it checks.

use std::collections::HashMap;

use kvferry_proto::Identity;

/// One attempt of one transfer: process, index, attempt.
pub(crate) type AttemptId = (usize, usize, u32);

/// A notification, from reservation to inbox.
pub(crate) struct Note {
    from: usize,
    to: Identity,
    transfer: Option<AttemptId>,
    /// Place in the order of issue.
    issued: Option<u64>,
    delivered: bool,
    /// The sender's engine gave up on it together with the peer or the connection.
    dropped: bool,
}

/// An attempt as its promises see it.
#[derive(Default)]
struct Attempt {
    chunks: u32,
    written: u32,
    failed: bool,
    cancelled: bool,
    /// Cancel or release returned Ok.
    let_go: bool,
    note: Option<u64>,
}

/// How often what was seen, so that a test can tell whether the schedules reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) steps: u64,
    pub(crate) links_up: u64,
    pub(crate) reconnects: u64,
    pub(crate) done: u64,
    pub(crate) done_delegated: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) stepped_back: u64,
    pub(crate) deregistered: u64,
    pub(crate) deregister_busy: u64,
    pub(crate) disconnected: u64,
    pub(crate) disconnect_busy: u64,
    pub(crate) cancel_busy: u64,
    pub(crate) delivered: u64,
    pub(crate) backlog: u64,
    pub(crate) delivered_for_lost_link: u64,
    pub(crate) deaths: u64,
    pub(crate) replaced: u64,
    pub(crate) refused_dead: u64,
    pub(crate) silent: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        let Self {
            steps,
            links_up,
            reconnects,
            done,
            done_delegated,
            failed,
            cancelled,
            stepped_back,
            deregistered,
            deregister_busy,
            disconnected,
            disconnect_busy,
            cancel_busy,
            delivered,
            backlog,
            delivered_for_lost_link,
            deaths,
            replaced,
            refused_dead,
            silent,
        } = other;
        self.steps += steps;
        self.links_up += links_up;
        self.reconnects += reconnects;
        self.done += done;
        self.done_delegated += done_delegated;
        self.failed += failed;
        self.cancelled += cancelled;
        self.stepped_back += stepped_back;
        self.deregistered += deregistered;
        self.deregister_busy += deregister_busy;
        self.disconnected += disconnected;
        self.disconnect_busy += disconnect_busy;
        self.cancel_busy += cancel_busy;
        self.delivered += delivered;
        self.backlog += backlog;
        self.delivered_for_lost_link += delivered_for_lost_link;
        self.deaths += deaths;
        self.replaced += replaced;
        self.refused_dead += refused_dead;
        self.silent += silent;
    }
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) seen: Seen,
    violation: Option<String>,
    notes: Vec<Note>,
    issued: u64,
    /// The last notification in the inbox, by sender and receiver.
    last_delivered: HashMap<(usize, usize), u64>,
    attempts: HashMap<AttemptId, Attempt>,
}

impl Ledger {
    /// A promise is broken; the first time counts.
    pub(crate) fn broken(&mut self, what: impl Into<String>) {
        self.violation.get_or_insert_with(|| what.into());
    }

    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(crate) fn new_note(&mut self, from: usize, to: Identity, transfer: Option<AttemptId>) -> u64 {
        self.notes.push(Note { from, to, transfer, issued: None, delivered: false, dropped: false });
        self.notes.len() as u64 - 1
    }

    pub(crate) fn issued(&mut self, note: u64) {
        self.issued += 1;
        self.notes[note as usize].issued = Some(self.issued);
    }

    /// The sender forgot the peer, and with it all that was not delivered.
    pub(crate) fn sender_gone(&mut self, from: usize, to: &Identity) {
        for note in self.notes.iter_mut().filter(|note| note.from == from && note.to == *to) {
            note.dropped = true;
        }
    }

    pub(crate) fn delivered(&mut self, note: u64, at: usize, identity: &Identity) {
        self.seen.delivered += 1;
        let Some(entry) = self.notes.get_mut(note as usize) else {
            return self.broken(format!("notification {note} was made up"));
        };
        let from = entry.from;
        let twice = std::mem::replace(&mut entry.delivered, true);
        let (issued, transfer, dropped) = (entry.issued, entry.transfer, entry.dropped);
        if entry.to != *identity {
            return self.broken(format!("notification {note} came to another process"));
        }
        if twice {
            return self.broken(format!("notification {note} was delivered twice"));
        }
        let Some(issued) = issued else {
            return self.broken(format!("notification {note} was delivered and never issued"));
        };
        let last = self.last_delivered.insert((from, at), issued).unwrap_or(0);
        if issued <= last {
            return self.broken(format!("notification {note} came out of order"));
        }
        let Some(id) = transfer else {
            return;
        };
        let attempt = self.attempts.entry(id).or_default();
        if attempt.written < attempt.chunks {
            return self.broken(format!("notification of {id:?} came before its data"));
        }
        if attempt.cancelled || (attempt.failed && !dropped) {
            self.broken(format!("notification of {id:?} came although it failed or was cancelled"));
        } else if attempt.failed {
            // Its link was lost after it was issued: the sender can't know.
            self.seen.delivered_for_lost_link += 1;
        }
    }

    pub(crate) fn posted(&mut self, id: AttemptId, chunks: u32, note: Option<u64>) {
        self.attempts.insert(id, Attempt { chunks, note, ..Attempt::default() });
    }

    /// Part of a chunk was written; `last` if the chunk is complete.
    pub(crate) fn written(&mut self, id: AttemptId, last: bool) {
        let attempt = self.attempts.entry(id).or_default();
        attempt.written += u32::from(last);
        if attempt.let_go {
            self.broken(format!("write of {id:?} landed after cancel or release returned Ok"));
        }
    }

    pub(crate) fn let_go(&mut self, id: AttemptId) {
        self.attempts.entry(id).or_default().let_go = true;
    }

    pub(crate) fn ended_done(&mut self, id: AttemptId, delegated: bool) {
        self.seen.done += 1;
        self.seen.done_delegated += u64::from(delegated);
        let attempt = self.attempts.entry(id).or_default();
        let missing = attempt.chunks - attempt.written;
        let note = attempt.note;
        if missing > 0 {
            self.broken(format!("{id:?} is done, {missing} chunks are missing"));
        }
        if note.is_some_and(|note| !self.notes[note as usize].delivered) {
            self.broken(format!("{id:?} is done, its notification was not delivered"));
        }
    }

    pub(crate) fn ended_cancelled(&mut self, id: AttemptId) {
        self.seen.cancelled += 1;
        self.attempts.entry(id).or_default().cancelled = true;
    }

    /// `after_issue`: its link was lost when the notification had been issued.
    pub(crate) fn ended_failed(&mut self, id: AttemptId, after_issue: bool) {
        self.seen.failed += 1;
        let attempt = self.attempts.entry(id).or_default();
        attempt.failed = true;
        let Some(note) = attempt.note else {
            return;
        };
        let note = &mut self.notes[note as usize];
        note.dropped |= after_issue;
        if note.delivered && !after_issue {
            self.broken(format!("{id:?} failed, its notification was delivered"));
        } else if note.delivered {
            self.seen.delivered_for_lost_link += 1;
        }
    }

    /// Nothing moves any more: bare notifications between living processes must have come.
    pub(crate) fn check_bare(&mut self, is_alive: impl Fn(usize) -> bool, lives: impl Fn(&Identity) -> bool) {
        let missing = self.notes.iter().position(|note| {
            let owed = note.issued.is_some() && note.transfer.is_none() && !note.dropped;
            owed && !note.delivered && is_alive(note.from) && lives(&note.to)
        });
        if let Some(note) = missing {
            self.broken(format!("bare notification {note} was lost"));
        }
    }
}
