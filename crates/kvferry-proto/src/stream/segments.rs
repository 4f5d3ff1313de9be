//! How a frame names the memory of the target: segments of one region are told together.
//!
//! ```text
//!   0        8     16     24      26     27      28       32
//!   +--------+-----+------+-------+------+-------+--------+
//!   | region | key | base | count | form | shift | length |   then what the form says
//!   +--------+-----+------+-------+------+-------+--------+
//! ```
//! The first segment begins at `base` and has `length` bytes. The others are told as distances from `base`, in units of
//! `1 << shift` bytes:
//!
//! | form | for each further segment | bytes |
//! |---|---|---|
//! | Even | distance i32; all have the same length | 4 |
//! | Mixed | distance i32, length u16, both in units | 6 |
//! | Wide | offset u64, length u32, both in bytes | 12 |
//! | Runs | none; the stride u32 in units, then `count` runs: distance i32, segments u16 | 6 a run |
//!
//! A single segment takes no more than the 32 bytes. Nothing is remembered from frame to frame: a target holds no lists of
//! its peers, and checks each segment of each frame against the region as it is then.

#[cfg(test)]
pub(crate) mod tests;

use super::{MAX_STREAM_SEGMENTS, StreamError, array};
use crate::region::{RegionId, RegionKey};

/// Least bytes that name memory: one segment.
pub const STREAM_GROUP: usize = 32;

/// Most bytes that name the memory of a frame: each segment in a region of its own.
pub const MAX_STREAM_NAMES: u32 = MAX_STREAM_SEGMENTS as u32 * STREAM_GROUP as u32;

const EVEN: u8 = 0;
const MIXED: u8 = 1;
const WIDE: u8 = 2;
const RUNS: u8 = 3;

/// The largest unit is 1 MiB, as no segment is longer.
const MAX_SHIFT: u32 = 20;

/// A stretch of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSegment {
    /// The region of the target.
    pub region: RegionId,
    /// Its key.
    pub key: RegionKey,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u32,
}

impl StreamSegment {
    /// Appends what names `segments`, in their order. Cheapest where those of one region stand together.
    pub fn encode(segments: &[Self], out: &mut Vec<u8>) {
        let together = |a: &Self, b: &Self| (a.region, a.key) == (b.region, b.key);
        for group in segments.chunk_by(together) {
            for group in group.chunks(MAX_STREAM_SEGMENTS.into()) {
                encode_group(group, out);
            }
        }
    }

    /// Appends to `out` the `count` segments that `bytes` name.
    ///
    /// # Errors
    /// They name more or fewer, or break the form. No more than [`MAX_STREAM_SEGMENTS`] are appended, whatever they say.
    pub fn decode(mut bytes: &[u8], count: u16, out: &mut Vec<Self>) -> Result<(), StreamError> {
        let mut left = usize::from(count.min(MAX_STREAM_SEGMENTS));
        while let Some((head, rest)) = bytes.split_first_chunk::<STREAM_GROUP>() {
            bytes = rest;
            let before = out.len();
            bytes = decode_group(head, bytes, left, out).ok_or(StreamError::Names)?;
            left -= out.len() - before;
        }
        if bytes.is_empty() && left == 0 && count <= MAX_STREAM_SEGMENTS {
            Ok(())
        } else {
            Err(StreamError::Names)
        }
    }
}

fn encode_group(group: &[StreamSegment], out: &mut Vec<u8>) {
    let Some((first, rest)) = group.split_first() else { return };
    let distance = |s: &StreamSegment| s.offset.wrapping_sub(first.offset).cast_signed();
    let even = rest.iter().all(|s| s.len == first.len);
    let bits = rest
        .iter()
        .fold(0, |bits, s| bits | distance(s).cast_unsigned() | if even { 0 } else { u64::from(s.len) });
    let shift = bits.trailing_zeros().min(MAX_SHIFT);
    let near = rest.iter().all(|s| i32::try_from(distance(s) >> shift).is_ok());
    let short = rest.iter().all(|s| s.len >> shift <= u32::from(u16::MAX));
    let runs = if even && near { runs(group, shift) } else { None };
    let (form, count) = match &runs {
        Some((_, runs)) => (RUNS, runs.len()),
        None if even && near => (EVEN, group.len()),
        None if near && short => (MIXED, group.len()),
        None => (WIDE, group.len()),
    };
    for field in [first.region.0, first.key.0, first.offset] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&(count as u16).to_le_bytes());
    out.extend_from_slice(&[form, if form == WIDE { 0 } else { shift as u8 }]);
    out.extend_from_slice(&first.len.to_le_bytes());
    let units = |s: &StreamSegment| ((distance(s) >> shift) as i32).to_le_bytes();
    match runs {
        Some((stride, runs)) => {
            out.extend_from_slice(&stride.to_le_bytes());
            for (first, count) in runs {
                out.extend_from_slice(&units(&group[first]));
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
        None if form == EVEN => rest.iter().for_each(|s| out.extend_from_slice(&units(s))),
        None if form == MIXED => rest.iter().for_each(|s| {
            out.extend_from_slice(&units(s));
            out.extend_from_slice(&((s.len >> shift) as u16).to_le_bytes());
        }),
        None => rest.iter().for_each(|s| {
            out.extend_from_slice(&s.offset.to_le_bytes());
            out.extend_from_slice(&s.len.to_le_bytes());
        }),
    }
}

/// The stride, in units, and the runs (first segment, segments) of segments of one length, if to tell those is cheaper than
/// to tell each segment.
fn runs(group: &[StreamSegment], shift: u32) -> Option<(u32, Vec<(usize, u16)>)> {
    let step = |i: usize| group[i].offset.wrapping_sub(group[i - 1].offset);
    if group.len() < 4 {
        return None;
    }
    // Where all lie in runs, two steps of three are the stride at least.
    let stride = if step(1) == step(2) { step(1) } else { step(3) };
    let units = u32::try_from(stride >> shift).ok()?;
    let most = (4 * (group.len() - 1) - 4) / 6;
    let mut runs = Vec::new();
    let mut begin = 0;
    for i in 1..=group.len() {
        if i < group.len() && step(i) == stride {
            continue;
        }
        if runs.len() == most {
            return None;
        }
        runs.push((begin, (i - begin) as u16));
        begin = i;
    }
    Some((units, runs))
}

/// Reads a group of at most `left` segments; what follows it.
fn decode_group<'b>(
    head: &[u8; STREAM_GROUP],
    mut bytes: &'b [u8],
    mut left: usize,
    out: &mut Vec<StreamSegment>,
) -> Option<&'b [u8]> {
    let field = |i: usize| u64::from_le_bytes(array(&head[8 * i..8 * i + 8]));
    let (region, key, base) = (RegionId(field(0)), RegionKey(field(1)), field(2));
    let count = u16::from_le_bytes(array(&head[24..26]));
    let (form, shift) = (head[26], u32::from(head[27]));
    let len = u32::from_le_bytes(array(&head[28..32]));
    if count == 0 || shift > MAX_SHIFT {
        return None;
    }
    let at = |units: i32| base.wrapping_add_signed(i64::from(units) << shift);
    let mut push = |offset, len| {
        left = left.checked_sub(1)?;
        out.push(StreamSegment { region, key, offset, len });
        Some(())
    };
    if form == RUNS {
        let stride = u64::from(u32::from_le_bytes(*take(&mut bytes)?)) << shift;
        for _ in 0..count {
            let mut offset = at(i32::from_le_bytes(*take(&mut bytes)?));
            for _ in 0..u16::from_le_bytes(*take(&mut bytes)?) {
                push(offset, len)?;
                offset = offset.wrapping_add(stride);
            }
        }
        return Some(bytes);
    }
    push(base, len)?;
    for _ in 1..count {
        match form {
            EVEN => push(at(i32::from_le_bytes(*take(&mut bytes)?)), len)?,
            MIXED => {
                let offset = at(i32::from_le_bytes(*take(&mut bytes)?));
                let units = u32::from(u16::from_le_bytes(*take(&mut bytes)?));
                push(offset, units.checked_mul(1 << shift)?)?;
            }
            WIDE => {
                let offset = u64::from_le_bytes(*take(&mut bytes)?);
                push(offset, u32::from_le_bytes(*take(&mut bytes)?))?;
            }
            _ => return None,
        }
    }
    (form <= RUNS).then_some(bytes)
}

fn take<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}
