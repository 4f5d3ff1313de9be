//! Prefill: computes prompts chunk by chunk and sends the pages of one while the next is computed.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Result, bail};
use kvferry::Status;

use super::{Desk, Input};
use crate::block_table::FreePages;
use crate::control::{Order, Report, Setup, Summary};
use crate::ferry::{Fault, Ferry, Happening, Notice};
use crate::model::Model;
use crate::pools::KvPools;
use crate::sequence::Sequence;
use crate::stamp::{Stamp, millis};
use crate::timeline::Timeline;

/// Serves orders until `Finish`.
pub(super) fn run(setup: &Setup, model: &Model, desk: &Desk) -> Result<()> {
    let (mut ferry, pools) = Ferry::open("prefill", setup, model.shape())?;
    ferry.watch(desk.inputs.clone(), desk.voice.clone())?;
    desk.voice.say(&Report::Ready { card: Some(ferry.card()) })?;
    let mut prefill = Prefill {
        setup,
        model,
        desk,
        free: FreePages::in_order(pools.pages()),
        pools,
        ferry,
        jobs: VecDeque::new(),
        compute: Timeline::default(),
        transfer: Timeline::default(),
        copy: Duration::ZERO,
        summary: Summary::default(),
    };
    prefill.serve()?;
    prefill.sum_up()?;
    prefill.ferry.close()
}

/// A prompt on its way through this worker.
struct Job {
    request: usize,
    prompt: Vec<u32>,
    sequence: Sequence,
    /// Where its pages go at the peer.
    remote: Vec<u32>,
    /// Pages handed to the agent so far.
    posted: usize,
    /// Transfers that have not ended yet.
    open: Vec<Open>,
    /// Set once the last chunk is computed; it goes with the last pages.
    notice: Option<Notice>,
}

/// A transfer that has not ended.
struct Open {
    transfer: u64,
    since: Stamp,
}

impl Job {
    fn is_computed(&self) -> bool {
        self.sequence.len() == self.prompt.len()
    }

    /// Pages that may go now. The last ones wait until all earlier ones have landed: transfers are
    /// not ordered, and the notification they carry says that everything is there.
    fn sendable(&self, page_size: usize) -> usize {
        match (self.is_computed(), self.open.is_empty()) {
            (true, true) => self.prompt.len().div_ceil(page_size),
            (true, false) => self.posted,
            (false, _) => self.sequence.len() / page_size,
        }
    }

    fn has_landed(&self, page_size: usize) -> bool {
        self.is_computed() && self.open.is_empty() && self.posted == self.sendable(page_size)
    }
}

struct Prefill<'a> {
    setup: &'a Setup,
    model: &'a Model,
    desk: &'a Desk,
    free: FreePages,
    pools: KvPools,
    ferry: Ferry,
    /// Prompts in work; each gets one chunk in turn.
    jobs: VecDeque<Job>,
    compute: Timeline,
    transfer: Timeline,
    copy: Duration,
    summary: Summary,
}

impl Prefill<'_> {
    fn serve(&mut self) -> Result<()> {
        loop {
            // What has happened meanwhile comes first: nothing is posted to a peer known to be gone.
            while let Some(input) = self.desk.poll()? {
                if self.take(input)? {
                    return Ok(());
                }
            }
            self.post()?;
            if !self.compute()? {
                let input = self.desk.next()?;
                if self.take(input)? {
                    return Ok(());
                }
            }
        }
    }

    /// Takes an input in; true if it is the last.
    fn take(&mut self, input: Input) -> Result<bool> {
        match input {
            Input::Order(Order::Finish) => return Ok(true),
            Input::Order(order) => self.order(order)?,
            Input::Happening(Happening::Ended { transfer, status, at }) => {
                self.ended(transfer, &status, at)?;
            }
            Input::Happening(Happening::Lost(fault)) => {
                for job in std::mem::take(&mut self.jobs) {
                    self.give_up(job.request, &fault)?;
                }
            }
            Input::Happening(Happening::Notice(_)) | Input::Garbled(_) => {}
        }
        Ok(false)
    }

    fn order(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Meet(card) => {
                let route = self.ferry.meet(&card)?;
                self.desk.voice.say(&Report::Met { route })
            }
            Order::Prefill { request, prompt, pages } => {
                let table = self.free.take(prompt.len(), self.setup.page_size)?;
                self.jobs.push_back(Job {
                    request,
                    prompt,
                    sequence: Sequence::new(table),
                    remote: pages,
                    posted: 0,
                    open: Vec::new(),
                    notice: None,
                });
                Ok(())
            }
            other => bail!("prefill has no use for this order: {other:?}"),
        }
    }

    /// Computes the next chunk of the prompt whose turn it is; false if there is nothing to compute.
    fn compute(&mut self) -> Result<bool> {
        let Some(at) = self.jobs.iter().position(|job| !job.is_computed()) else {
            return Ok(false);
        };
        let Some(mut job) = self.jobs.remove(at) else {
            return Ok(false);
        };
        let start = job.sequence.len();
        let end = (start + self.setup.chunk).min(job.prompt.len());
        let chunk = &job.prompt[start..end];
        let from = Stamp::now();
        if end < job.prompt.len() {
            job.sequence.absorb(self.model, &mut self.pools, chunk)?;
        } else {
            let first = job.sequence.advance(self.model, &mut self.pools, chunk)?;
            job.notice = Some(Notice {
                request: job.request,
                tokens: job.prompt.len(),
                first,
                logits: job.sequence.hash(),
                finite: job.sequence.finite(),
            });
        }
        self.compute.push(from, Stamp::now());
        self.desk.voice.say(&Report::Chunk { request: job.request, done: end })?;
        self.jobs.push_back(job);
        Ok(true)
    }

    /// Hands all pages that are complete to the agent.
    fn post(&mut self) -> Result<()> {
        for mut job in std::mem::take(&mut self.jobs) {
            match self.post_pages(&mut job) {
                Ok(0) => self.jobs.push_back(job),
                Ok(pages) => {
                    self.desk.voice.say(&Report::Posted { request: job.request, pages })?;
                    self.jobs.push_back(job);
                }
                Err(fault) => self.give_up(job.request, &fault)?,
            }
        }
        Ok(())
    }

    /// Posts a transfer of a job's complete pages, if there are any. Returns their number.
    fn post_pages(&mut self, job: &mut Job) -> Result<usize, Fault> {
        let pages = job.posted..job.sendable(self.setup.page_size);
        if pages.is_empty() {
            return Ok(0);
        }
        let local = &job.sequence.table().pages()[pages.clone()];
        let remote = job.remote.get(pages.clone()).unwrap_or_default();
        let since = Stamp::now();
        let transfer = self.ferry.send(local, remote, job.notice.take())?;
        job.open.push(Open { transfer, since });
        job.posted = pages.end;
        Ok(pages.len())
    }

    fn ended(&mut self, transfer: u64, status: &Status, at: Stamp) -> Result<()> {
        let outcome = self.ferry.ended(transfer, status);
        let found = self.jobs.iter().enumerate().find_map(|(index, job)| {
            let open = job.open.iter().position(|open| open.transfer == transfer)?;
            Some((index, open))
        });
        // None: its request was given up already.
        let Some((index, open)) = found else {
            return Ok(());
        };
        let job = &mut self.jobs[index];
        let since = job.open.swap_remove(open).since;
        let (request, landed) = (job.request, job.has_landed(self.setup.page_size));
        match outcome {
            Err(fault) => {
                self.jobs.remove(index);
                self.give_up(request, &fault)
            }
            Ok(moved) => {
                self.transfer.push(since, at);
                self.copy += moved.copy;
                self.summary.transfers += 1;
                self.summary.bytes += moved.bytes;
                self.summary.blocks += moved.blocks;
                self.summary.merged += moved.merged;
                self.summary.route = moved.route;
                match landed.then(|| self.jobs.remove(index)).flatten() {
                    Some(job) => self.complete(&job),
                    None => Ok(()),
                }
            }
        }
    }

    fn complete(&self, job: &Job) -> Result<()> {
        let page_hashes = self.pools.page_hashes(job.sequence.table().pages());
        self.desk.voice.say(&Report::Prefilled { request: job.request, page_hashes })
    }

    fn give_up(&self, request: usize, fault: &Fault) -> Result<()> {
        let Fault { code, message } = fault.clone();
        self.desk.voice.say(&Report::Failed { request, code, message })
    }

    fn sum_up(&mut self) -> Result<()> {
        self.summary.transfer_ms = millis(self.transfer.busy());
        self.summary.hidden_ms = millis(self.transfer.overlap(&self.compute));
        self.summary.copy_ms = millis(self.copy);
        self.desk.voice.say(&Report::Summary(self.summary.clone()))
    }
}
