//! One process that does both halves of the work: what prefill and decode are compared with.

use anyhow::{Result, bail};

use super::decode::Answer;
use super::{Desk, Input};
use crate::block_table::FreePages;
use crate::control::{Order, Report, Setup, Summary};
use crate::memory::PoolMemory;
use crate::model::Model;
use crate::pools::KvPools;
use crate::sequence::Sequence;

/// Answers one prompt after the other until `Finish`.
pub(super) fn run(setup: &Setup, model: &Model, desk: &Desk) -> Result<()> {
    let mut pools = KvPools::new(model.shape(), setup.page_size, setup.pages, PoolMemory::private)?;
    let mut free = FreePages::in_order(setup.pages);
    desk.voice.say(&Report::Ready { card: None })?;
    loop {
        let (request, prompt) = match desk.next()? {
            Input::Order(Order::Answer { request, prompt }) => (request, prompt),
            Input::Order(Order::Finish) => {
                return desk.voice.say(&Report::Summary(Summary::default()));
            }
            Input::Order(other) => bail!("the worker alone has no use for this order: {other:?}"),
            _ => continue,
        };
        let table = free.take(prompt.len() + setup.tokens, setup.page_size)?;
        let moved = table.pages()[..prompt.len().div_ceil(setup.page_size)].to_vec();
        let mut sequence = Sequence::new(table);
        let mut chunks = prompt.chunks(setup.chunk).peekable();
        let mut first = 0;
        while let Some(chunk) = chunks.next() {
            match chunks.peek() {
                Some(_) => sequence.absorb(model, &mut pools, chunk)?,
                None => first = sequence.advance(model, &mut pools, chunk)?,
            }
            desk.voice.say(&Report::Chunk { request, done: sequence.len() })?;
        }
        desk.voice.say(&Report::Token { request, token: first })?;
        desk.voice.say(&Report::Prefilled { request, page_hashes: pools.page_hashes(&moved) })?;
        let mut answer = Some(Answer { request, sequence, last: first, count: 1 });
        while let Some(next) = answer {
            answer = next.step(setup, model, &mut pools, desk)?;
        }
    }
}
