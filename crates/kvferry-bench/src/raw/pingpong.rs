use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Sends `out`, waits until `back` is full, `count` times; hands each round trip's time to `record`.
pub(crate) fn ping(
    socket: &mut (impl Read + Write),
    out: &[u8],
    back: &mut [u8],
    count: u32,
    mut record: impl FnMut(Duration),
) -> Result<()> {
    for _ in 0..count {
        let started = Instant::now();
        socket.write_all(out).context("the ping-pong broke")?;
        socket.read_exact(back).context("the ping-pong broke")?;
        record(started.elapsed());
    }
    Ok(())
}

/// Waits until `heard` is full, sends `answer`, `count` times.
pub(crate) fn pong(
    socket: &mut (impl Read + Write),
    heard: &mut [u8],
    answer: &[u8],
    count: u32,
) -> Result<()> {
    for _ in 0..count {
        socket.read_exact(heard).context("the ping-pong broke")?;
        socket.write_all(answer).context("the ping-pong broke")?;
    }
    Ok(())
}
