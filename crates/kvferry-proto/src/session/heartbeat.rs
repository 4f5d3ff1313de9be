//! Pings, and the silence that follows when nobody answers.

use std::time::{Duration, Instant};

/// Pings in one silence that must go unanswered: one that was sent late, because this process was stopped, is not
/// enough.
const UNANSWERED: u32 = 2;

/// What the time demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    Wait,
    Ping(u64),
    Silent,
}

#[derive(Debug)]
pub(super) struct Heartbeat {
    silence: Duration,
    heard: Instant,
    pinged: Instant,
    unanswered: u32,
    last_token: u64,
}

impl Heartbeat {
    pub(super) fn new(now: Instant, silence: Duration) -> Self {
        Self { silence, heard: now, pinged: now, unanswered: 0, last_token: 0 }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.unanswered = 0;
    }

    pub(super) fn on_time(&mut self, now: Instant) -> Beat {
        if self.unanswered >= UNANSWERED && now >= self.heard + self.silence {
            return Beat::Silent;
        }
        if now >= self.pinged + self.interval() {
            self.pinged = now;
            self.unanswered += 1;
            self.last_token += 1;
            return Beat::Ping(self.last_token);
        }
        Beat::Wait
    }

    pub(super) fn next(&self) -> Instant {
        let ping = self.pinged + self.interval();
        if self.unanswered >= UNANSWERED { ping.min(self.heard + self.silence) } else { ping }
    }

    pub(super) fn last_token(&self) -> u64 {
        self.last_token
    }

    fn interval(&self) -> Duration {
        self.silence / 3
    }
}
