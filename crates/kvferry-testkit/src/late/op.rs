use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Instant;

use kvferry::transport::{Backlog, LinkOp, OpReport, OpRequest, OpSink, RemoteRef};
use kvferry::{FaultCause, FaultSide, LocalRegion, Op, Route};
use kvferry_proto::{Chunk, ChunkLimits, Plan, PlanCursor, RouteId};
use kvferry_sys::{Direction, Pid, RegionSlice, RemoteSlice, Touch, Vectors};

use super::link::{LateLink, ROUTE};
use super::lock;
use super::worker::Job;

/// One transfer on a wire.
pub(super) struct LateOp {
    me: Weak<Self>,
    link: Arc<LateLink>,
    plan: Arc<Plan>,
    local: Arc<[Arc<LocalRegion>]>,
    remote: Arc<[RemoteRef]>,
    far: Vec<RegionSlice>,
    sink: Weak<dyn OpSink>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    /// Waits for its time, since then.
    Waiting {
        attempt: u32,
        since: Instant,
    },
    /// Goes on to its last byte, whatever happens.
    Running {
        attempt: u32,
        failed: bool,
    },
}

impl LateOp {
    pub(super) fn new(link: Arc<LateLink>, request: OpRequest, far: Vec<RegionSlice>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            link,
            plan: request.plan,
            local: request.local,
            remote: request.remote,
            far,
            sink: request.sink,
            state: Mutex::new(State::Idle),
        })
    }

    /// The time of an attempt has come.
    pub(super) fn run(&self, attempt: u32) {
        let begun = Instant::now();
        let since = {
            let mut state = lock(&self.state);
            match *state {
                State::Waiting { attempt: waiting, since } if waiting == attempt => {
                    *state = State::Running { attempt, failed: false };
                    since
                }
                // Cancelled, or already another attempt.
                _ => return,
            }
        };
        let run = match self.begin() {
            Ok(run) => run,
            Err(cause) => return self.refuse(attempt, cause),
        };
        let copied = self.copy();
        self.link.finished(run);
        let failed = {
            let mut state = lock(&self.state);
            let failed = matches!(*state, State::Running { failed: true, .. });
            *state = State::Idle;
            failed
        };
        let Some(sink) = self.sink.upgrade() else { return };
        match copied {
            _ if failed => sink.quiet(attempt),
            Err(detail) => {
                sink.clone().failed(attempt, FaultCause::Denied { detail });
                sink.quiet(attempt);
            }
            Ok(segments) => {
                let (queued, copied) = (begun - since, begun.elapsed());
                sink.done(attempt, OpReport { queued, copied, segments });
            }
        }
    }

    /// The link is lost.
    pub(super) fn fail(&self, cause: &FaultCause) {
        let (attempt, quiet) = {
            let mut state = lock(&self.state);
            match &mut *state {
                State::Idle | State::Running { failed: true, .. } => return,
                State::Running { attempt, failed } => {
                    *failed = true;
                    (*attempt, false)
                }
                State::Waiting { attempt, .. } => {
                    let attempt = *attempt;
                    *state = State::Idle;
                    (attempt, true)
                }
            }
        };
        let Some(sink) = self.sink.upgrade() else { return };
        sink.clone().failed(attempt, cause.clone());
        if quiet {
            sink.quiet(attempt);
        }
    }

    fn begin(&self) -> Result<u64, FaultCause> {
        if let Some(cause) = self.link.lost_cause() {
            return Err(cause);
        }
        let ours = self.local.iter().map(|region| region.id()).collect();
        let theirs = self.remote.iter().map(|remote| remote.region.id).collect();
        let run = self.link.wire.begin([ours, theirs]).map_err(|barred| self.link.cause_of(barred))?;
        // After the entry in the book: whoever takes a region back marks it first and looks into the book then.
        let gone = if self.local.iter().any(|region| region.is_gone()) {
            Some(FaultSide::Local)
        } else if self.remote.iter().any(RemoteRef::is_revoked) {
            Some(FaultSide::Remote)
        } else {
            None
        };
        match gone {
            None => Ok(run),
            Some(side) => {
                self.link.finished(run);
                Err(FaultCause::Revoked { side })
            }
        }
    }

    fn refuse(&self, attempt: u32, cause: FaultCause) {
        let told = matches!(*lock(&self.state), State::Running { failed: true, .. });
        *lock(&self.state) = State::Idle;
        let Some(sink) = self.sink.upgrade() else { return };
        if !told {
            sink.clone().failed(attempt, cause);
        }
        sink.quiet(attempt);
    }

    fn copy(&self) -> Result<u64, String> {
        let mut cursor = PlanCursor::new(self.plan.clone());
        let (mut chunk, mut vectors, mut segments) = (Chunk::new(), Vectors::new(), 0);
        let direction = match self.plan.op() {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
        };
        while cursor.next_chunk(ChunkLimits::default(), |_, _| Some(RouteId(0)), &mut chunk) {
            vectors.clear();
            for s in chunk.segments() {
                segments += 1;
                let near = self.local[s.local_slot as usize].slice(s.local_addr, s.len);
                let region = self.remote[s.remote_slot as usize].region.desc;
                let far = self.far[s.remote_slot as usize].slice(s.remote_addr - region.addr, s.len);
                let (Some(near), Some(far)) = (near, far) else {
                    return Err("a segment leaves its region".into());
                };
                if near.touch() == Touch::LoadStore && far.touch() == Touch::LoadStore {
                    let (to, from) = match direction {
                        Direction::Read => (near, far),
                        Direction::Write => (far, near),
                    };
                    kvferry_sys::copy(to, from).map_err(|error| error.to_string())?;
                } else if !vectors.push(near, RemoteSlice { addr: far.addr(), len: far.len() }) {
                    return Err("a segment is out of bounds".into());
                }
            }
            if !vectors.is_empty() {
                vectors.transfer(direction, Pid::own()).map_err(|error| error.to_string())?;
            }
            kvferry_sys::copy_fence();
            thread::sleep(self.link.shop.options.pace);
        }
        Ok(segments)
    }
}

impl LinkOp for LateOp {
    fn submit(&self, attempt: u32) -> Result<(), Backlog> {
        let Some(op) = self.me.upgrade() else { return Err(Backlog) };
        let since = Instant::now();
        *lock(&self.state) = State::Waiting { attempt, since };
        let due = since + self.link.shop.options.start_after;
        self.link.shop.queue(Job { due, op, attempt }).inspect_err(|_| *lock(&self.state) = State::Idle)
    }

    fn request_cancel(&self) {
        let attempt = {
            let mut state = lock(&self.state);
            let State::Waiting { attempt, .. } = *state else { return };
            *state = State::Idle;
            attempt
        };
        if let Some(sink) = self.sink.upgrade() {
            sink.quiet(attempt);
        }
    }

    fn route(&self) -> Route {
        ROUTE
    }

    fn bytes(&self) -> u64 {
        self.plan.bytes()
    }
}

impl fmt::Debug for LateOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateOp")
            .field("blocks", &self.plan.blocks())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
