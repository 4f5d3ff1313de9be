//! Requests about peers, transfers and notifications.

use std::time::{Duration, Instant};

use kvferry::{GridRow, Indices, Status, Transfer, TransferOptions};

use super::{
    Outcome, answer, broken, failure,
    world::{World, lock},
};
use crate::harness::{Counters, Failure, Measured, Received, Request, State, TransferSpec, now_ns};

impl World {
    pub(super) fn serve_peers(&self, request: Request) -> Outcome {
        match request {
            Request::Transfer(spec) => answer(self.create(&spec)),
            Request::Post { transfer } => {
                answer(self.transfer(transfer)?.post().map_err(|e| failure(e.code(), &e)))
            }
            Request::Status { transfer } => answer(Ok(state(self.transfer(transfer)?.status()))),
            Request::Wait { transfer, timeout_ms } => {
                let ended = self.transfer(transfer)?.wait(Duration::from_millis(timeout_ms));
                answer(Ok(state(ended.map_err(|e| failure(e.code(), e))?)))
            }
            Request::Cancel { transfer, timeout_ms } => {
                let transfer = self.transfer(transfer)?;
                let quiet = match timeout_ms {
                    Some(ms) => transfer.cancel_within(Duration::from_millis(ms)),
                    None => transfer.cancel(),
                };
                answer(quiet.map_err(|e| failure(e.code(), &e)))
            }
            Request::Release { transfer: number, timeout_ms } => {
                let transfer = self.take_transfer(number)?;
                let released = match timeout_ms {
                    Some(ms) => transfer.release_within(Duration::from_millis(ms)),
                    None => transfer.release(),
                };
                let Err(error) = released else { return answer(Ok(())) };
                let told = failure(error.code(), &error);
                self.put_transfer(number, error.transfer);
                Err(told)
            }
            Request::Discard { transfer } => answer(self.take_transfer(transfer).map(drop)),
            Request::Telemetry { transfer } => answer(Ok(measured(&*self.transfer(transfer)?))),
            request => self.serve_names(request),
        }
    }

    fn serve_names(&self, request: Request) -> Outcome {
        let agent = self.agent()?;
        let ms = Duration::from_millis;
        match request {
            Request::Metadata => answer(Ok(to_hex(&agent.metadata()))),
            Request::Load { metadata } => {
                answer(agent.load_remote(&from_hex(&metadata)?).map_err(|e| failure(e.code(), &e)))
            }
            Request::Remove { peer } => answer(agent.remove_remote(&peer).map_err(|e| failure(e.code(), &e))),
            Request::Connect { peer, timeout_ms } => {
                answer(agent.connect(&peer, ms(timeout_ms)).map_err(|e| failure(e.code(), &e)))
            }
            Request::Disconnect { peer, timeout_ms } => {
                let parted = match timeout_ms {
                    Some(timeout) => agent.disconnect_within(&peer, ms(timeout)),
                    None => agent.disconnect(&peer),
                };
                answer(parted.map_err(|e| failure(e.code(), &e)))
            }
            Request::Check { peer } => answer(Ok(agent.check_remote(&peer, None))),
            Request::Path { peer } => {
                let reports = agent.path(&peer).map_err(|e| failure(e.code(), &e))?;
                answer(Ok(reports.iter().map(ToString::to_string).collect::<Vec<_>>()))
            }
            Request::Notify { peer, payload } => {
                answer(agent.notify(&peer, payload.as_bytes()).map_err(|e| failure(e.code(), &e)))
            }
            Request::Notifications => answer(Ok(self.received(&agent))),
            Request::AwaitNotifications { count, timeout_ms } => {
                let deadline = Instant::now() + ms(timeout_ms);
                loop {
                    if self.receive(&agent) >= count || Instant::now() >= deadline {
                        return answer(Ok(self.received(&agent)));
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            Request::AwaitEvent { kind, peer, timeout_ms } => {
                let event = self.events()?.take(&kind, &peer, ms(timeout_ms));
                answer(event.ok_or_else(|| broken(format!("no event {kind} of {peer} in {timeout_ms} ms"))))
            }
            Request::Chatter { peer, from, count, gap_us } => {
                let say = |number| agent.notify(&peer, format!("bare {number} {}", now_ns()).as_bytes());
                let taken = (from..from + count).take_while(|number| {
                    std::thread::sleep(Duration::from_micros(gap_us));
                    say(*number).is_ok()
                });
                answer(Ok(taken.count() as u64))
            }
            Request::ForgetEvents => answer(self.events().map(|events| events.forget())),
            Request::Stats => answer(Ok(counters(&agent.stats()))),
            other => Err(broken(format!("nobody serves {other:?}"))),
        }
    }

    fn create(&self, spec: &TransferSpec) -> Result<u64, Failure> {
        let agent = self.agent()?;
        let area = self.area(spec.buffer)?;
        let row = |addr, len| {
            [GridRow { addr, len: spec.block, device: 0, stride: spec.block, count: len / spec.block }]
        };
        let (local, remote) = (row(area.addr(), area.len()), row(spec.remote.0, spec.remote.1));
        let list = |e: kvferry::PrepareError| failure(e.code(), &e);
        let local = agent.prepare_local(TransferSpec::KIND, &local[..]).map_err(list)?;
        let remote = agent.prepare_remote(&spec.peer, TransferSpec::KIND, &remote[..]).map_err(list)?;
        let (here, there): (Vec<u32>, Vec<u32>) = spec.pairs.iter().copied().unzip();
        let indices = |list| if spec.pairs.is_empty() { Indices::All } else { Indices::List(list) };
        let mut options = TransferOptions::default();
        if let Some(payload) = &spec.notification {
            options = options.notify(payload.as_bytes());
        }
        let transfer = agent.transfer(spec.op(), &local, indices(&here), &remote, indices(&there), options);
        Ok(self.add_transfer(transfer.map_err(|e| failure(e.code(), &e))?))
    }

    /// Takes what has come from the agent; returns how many nobody has asked for yet.
    fn receive(&self, agent: &kvferry::Agent) -> usize {
        let mut received = lock(&self.received);
        let come = agent.notifications();
        let stamp = now_ns();
        received.extend(come.into_iter().map(|n| Received {
            from: n.from,
            payload: String::from_utf8_lossy(&n.payload).into_owned(),
            stamp,
        }));
        received.len()
    }

    fn received(&self, agent: &kvferry::Agent) -> Vec<Received> {
        self.receive(agent);
        std::mem::take(&mut *lock(&self.received))
    }
}

fn state(status: Status) -> State {
    match status {
        Status::Created => State::Created,
        Status::Posted => State::Posted,
        Status::Running => State::Running,
        Status::Done => State::Done,
        Status::Failed(fault) => State::Failed(failure(fault.code(), &fault)),
        Status::Cancelled => State::Cancelled,
        other => State::Failed(broken(other)),
    }
}

fn measured(transfer: &Transfer) -> Measured {
    let t = transfer.telemetry();
    let ns = |d: Duration| d.as_nanos() as u64;
    Measured {
        post_ns: ns(t.post),
        queue_ns: ns(t.queue),
        copy_ns: ns(t.copy),
        bytes: t.bytes,
        blocks: t.blocks,
        merged: t.merged,
        path: t.path.map(|p| p.to_string()).unwrap_or_default(),
        mechanism: t.mechanism.map(|m| m.to_string()).unwrap_or_default(),
    }
}

fn counters(stats: &kvferry::Stats) -> Counters {
    Counters {
        done: stats.paths.iter().map(|((path, by), s)| (format!("{path} {by}"), s.transfers)).collect(),
        failures: stats.failures.iter().map(|(code, n)| ((*code).to_owned(), *n)).collect(),
        cancels: stats.cancels,
        queue_depth: stats.queue_depth,
        quarantined: stats.regions_quarantined,
        links_out: stats.links_out,
        links_in: stats.links_in,
        lingering: stats.links_lingering,
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, Failure> {
    let digit = |b: &u8| (*b as char).to_digit(16).map(|d| d as u8).ok_or_else(|| broken("not hexadecimal"));
    text.as_bytes()
        .chunks(2)
        .map(|pair| pair.iter().try_fold(0, |byte, b| Ok(byte << 4 | digit(b)?)))
        .collect()
}
