//! Decode: sets pages aside, waits for the notification that they are filled, and goes on.

use std::collections::{HashMap, VecDeque};

use anyhow::{Context, Result, bail};

use super::{Desk, Input};
use crate::block_table::{BlockTable, FreePages};
use crate::control::{Flip, Order, Report, Setup, Summary};
use crate::ferry::{Fault, Ferry, Happening, Notice};
use crate::model::Model;
use crate::pools::{Kind, KvPools};
use crate::sequence::Sequence;

/// Seed of the order in which this worker hands out its pages.
const SCATTER: u64 = 0x5eed;

/// Serves orders and notifications until `Finish`.
pub(super) fn run(setup: &Setup, model: &Model, desk: &Desk) -> Result<()> {
    let (mut ferry, pools) = Ferry::open("decode", setup, model.shape())?;
    ferry.watch(desk.inputs.clone(), desk.voice.clone())?;
    desk.voice.say(&Report::Ready { card: Some(ferry.card()) })?;
    let mut decode = Decode {
        setup,
        model,
        desk,
        free: FreePages::shuffled(pools.pages(), SCATTER),
        pools,
        ferry,
        reserved: HashMap::new(),
        answering: VecDeque::new(),
    };
    decode.serve()?;
    decode.ferry.close()
}

/// An answer in the making.
pub(super) struct Answer {
    pub(super) request: usize,
    pub(super) sequence: Sequence,
    pub(super) last: u32,
    pub(super) count: usize,
}

struct Decode<'a> {
    setup: &'a Setup,
    model: &'a Model,
    desk: &'a Desk,
    free: FreePages,
    pools: KvPools,
    ferry: Ferry,
    /// Pages of requests whose prompt has not come yet.
    reserved: HashMap<usize, BlockTable>,
    /// Answers that are not complete, one token each in turn.
    answering: VecDeque<Answer>,
}

impl Decode<'_> {
    fn serve(&mut self) -> Result<()> {
        loop {
            let input = match self.answering.is_empty() {
                true => Some(self.desk.next()?),
                false => self.desk.poll()?,
            };
            match input {
                Some(Input::Order(Order::Finish)) => {
                    return self.desk.voice.say(&Report::Summary(Summary::default()));
                }
                Some(Input::Order(order)) => self.order(order)?,
                Some(Input::Happening(Happening::Notice(payload))) => self.start(&payload)?,
                Some(Input::Happening(Happening::Lost(fault))) => self.lose_reserved(&fault)?,
                Some(_) => {}
                None => self.step()?,
            }
        }
    }

    fn order(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Meet(card) => {
                let route = self.ferry.meet(&card)?;
                self.desk.voice.say(&Report::Met { route })
            }
            Order::Reserve { request, tokens } => {
                let table = self.free.take(tokens, self.setup.page_size)?;
                let pages = table.pages().to_vec();
                self.reserved.insert(request, table);
                self.desk.voice.say(&Report::Reserved { request, pages })
            }
            other => bail!("decode has no use for this order: {other:?}"),
        }
    }

    /// The pages of a prompt have landed: the answer begins.
    fn start(&mut self, payload: &[u8]) -> Result<()> {
        let notice: Notice = postcard::from_bytes(payload).context("cannot read prefill's notification")?;
        let request = notice.request;
        let table = self
            .reserved
            .remove(&request)
            .with_context(|| format!("prefill notified request {request}, which has no pages"))?;
        if notice.tokens > table.room() {
            bail!("prefill sent {} tokens for request {request}, beyond its pages", notice.tokens);
        }
        self.desk.voice.say(&Report::Token { request, token: notice.first })?;
        let moved = notice.tokens.div_ceil(self.setup.page_size);
        if let Some(flip) = self.setup.flip.filter(|_| request == 0) {
            self.damage(&table.pages()[..moved], flip)?;
        }
        self.desk.voice.say(&Report::Received {
            request,
            page_hashes: self.pools.page_hashes(&table.pages()[..moved]),
        })?;
        let answer = Answer {
            request,
            sequence: Sequence::resume(table, notice.tokens, notice.logits, notice.finite),
            last: notice.first,
            count: 1,
        };
        self.answering.push_back(answer);
        Ok(())
    }

    fn damage(&mut self, pages: &[u32], flip: Flip) -> Result<()> {
        let page = *pages.get(flip.page).context("no such page to damage")?;
        let bits = 8 * self.pools.page_bytes();
        let kind = Kind::BOTH[usize::from(flip.bit >= bits)];
        self.pools.flip_bit(flip.layer, kind, page, flip.bit % bits);
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let Some(answer) = self.answering.pop_front() else {
            return Ok(());
        };
        if let Some(answer) = answer.step(self.setup, self.model, &mut self.pools, self.desk)? {
            self.answering.push_back(answer);
        }
        Ok(())
    }

    /// Gives up the requests whose pages can't come any more.
    fn lose_reserved(&mut self, fault: &Fault) -> Result<()> {
        for (request, _) in self.reserved.drain() {
            let Fault { code, message } = fault.clone();
            self.desk.voice.say(&Report::Failed { request, code, message })?;
        }
        Ok(())
    }
}

impl Answer {
    /// Computes the next token; returns the answer if more are to come.
    pub(super) fn step(
        mut self,
        setup: &Setup,
        model: &Model,
        pools: &mut KvPools,
        desk: &Desk,
    ) -> Result<Option<Self>> {
        if self.count == setup.tokens || Some(self.last) == setup.end {
            desk.voice.say(&Report::Answered {
                request: self.request,
                logits: self.sequence.hash(),
                finite: self.sequence.finite(),
            })?;
            return Ok(None);
        }
        self.last = self.sequence.advance(model, pools, &[self.last])?;
        self.count += 1;
        desk.voice.say(&Report::Token { request: self.request, token: self.last })?;
        Ok(Some(self))
    }
}
