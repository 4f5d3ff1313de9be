//! Durations and sizes in text.

use std::time::Duration;

/// Units of time in nanoseconds, largest first.
const TIMES: [(&str, u64); 5] =
    [("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Units of size in bytes, largest first.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// `3s`, `200ms`: a whole number and a unit. A bare number is not a duration, for it does not say of what;
/// but 0 is.
pub(super) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return match number {
            0 => Ok(Duration::ZERO),
            _ => Err("has no unit"),
        };
    }
    let scale = scale(&TIMES, unit).ok_or("has an unknown unit")?;
    let nanos = number.checked_mul(scale).ok_or("too large")?;
    Ok(Duration::from_nanos(nanos))
}

/// `16KiB`, `16384`: a whole number of bytes or of the unit.
pub(super) fn parse_size(text: &str) -> Result<u64, &'static str> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Ok(number);
    }
    let scale = scale(&SIZES, unit).ok_or("has an unknown unit")?;
    number.checked_mul(scale).ok_or("too large")
}

/// The duration as [`parse_duration`] reads it, in the largest unit in which it is whole.
pub(super) fn show_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, scale) in TIMES {
        let scale = u128::from(scale);
        if nanos.is_multiple_of(scale) {
            return format!("{}{unit}", nanos / scale);
        }
    }
    format!("{nanos}ns")
}

/// The size as [`parse_size`] reads it, in the largest unit in which it is whole.
pub(super) fn show_size(bytes: u64) -> String {
    if bytes == 0 {
        return "0".to_owned();
    }
    let (unit, scale) = SIZES.into_iter().find(|(_, scale)| bytes.is_multiple_of(*scale)).unwrap_or(("B", 1));
    format!("{}{unit}", bytes / scale)
}

fn split(text: &str) -> Result<(u64, &str), &'static str> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("does not start with a whole number");
    }
    let number = number.parse().map_err(|_| "too large")?;
    Ok((number, unit.trim_start()))
}

fn scale(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}
