//! Times of lines, for comparing lines of different logs.

use std::cmp::Ordering;

/// Prefixes are no longer.
const LONGEST_PREFIX: usize = 128;
const DAY: i64 = 24 * 60 * 60;
const DAYS_BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// When a line was written, in seconds of its year: many loggers tell no year. Times of a zone that the line doesn't
/// tell compare with each other only. Fractions don't count, since not all loggers tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Clock {
    local: Option<i64>,
    utc: Option<i64>,
}

impl Clock {
    /// Reads the times of a line's prefix: a container's, then the logger's.
    pub(crate) fn read(line: &[u8]) -> Self {
        let line = &line[..line.len().min(LONGEST_PREFIX)];
        let mut clock = Self { local: None, utc: epoch(line) };
        let mut at = 0;
        while let Some(found) = line[at..].windows(8).position(is_time) {
            let start = at + found;
            at = start + 8;
            let Some(day) = day_before(&line[..start]) else { continue };
            let seconds = day * DAY + seconds(&line[start..at]);
            match offset(&line[at..]) {
                Some(offset) => clock.utc = clock.utc.or(Some(seconds - offset)),
                None => clock.local = clock.local.or(Some(seconds)),
            }
        }
        clock
    }

    /// The order of two times; none if they can't be compared.
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        let both = |a: Option<i64>, b: Option<i64>| Some(a?.cmp(&b?));
        both(self.local, other.local).or_else(|| both(self.utc, other.utc))
    }

    /// The earlier of two times, of each kind.
    pub(crate) fn min(self, other: Self) -> Self {
        self.fold(other, i64::min)
    }

    /// The later of two times, of each kind.
    pub(crate) fn max(self, other: Self) -> Self {
        self.fold(other, i64::max)
    }

    fn fold(self, other: Self, choose: impl Fn(i64, i64) -> i64) -> Self {
        let fold = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (Some(a), Some(b)) => Some(choose(a, b)),
            (a, b) => a.or(b),
        };
        Self { local: fold(self.local, other.local), utc: fold(self.utc, other.utc) }
    }
}

/// `10:11:12`
fn is_time(text: &[u8]) -> bool {
    text.iter().enumerate().all(
        |(at, byte)| {
            if at == 2 || at == 5 { *byte == b':' } else { byte.is_ascii_digit() }
        },
    )
}

fn seconds(time: &[u8]) -> i64 {
    number(&time[..2]) * 3600 + number(&time[3..5]) * 60 + number(&time[6..8])
}

fn number(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit.wrapping_sub(b'0')))
}

/// The day of the year of the date that ends a text: `2026-08-21T`, `08-21 `, `2026/08/21 `, `E0821 `, `I20260821 `,
/// `Aug 21 `.
fn day_before(text: &[u8]) -> Option<i64> {
    let date = text.strip_suffix(b"T").or_else(|| text.strip_suffix(b" "))?;
    let digits = date.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, last) = date.split_at(date.len() - digits);
    match (digits, before.last()?) {
        (2, separator @ (b'-' | b'/')) => {
            let month = before.strip_suffix(&[*separator])?.last_chunk::<2>()?;
            day(number(month), number(last))
        }
        (4 | 8, b'I' | b'W' | b'E' | b'F') => {
            let (month, of_month) = last.last_chunk::<4>()?.split_at(2);
            day(number(month), number(of_month))
        }
        (1 | 2, b' ') => {
            let name = before.trim_ascii_end().last_chunk::<3>()?;
            let month = MONTHS.iter().position(|month| *month == name)?;
            day(i64::try_from(month).ok()? + 1, number(last))
        }
        _ => None,
    }
}

fn day(month: i64, of_month: i64) -> Option<i64> {
    let before = DAYS_BEFORE_MONTH.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    Some(before + of_month)
}

/// The zone that follows a time, in seconds east of UTC; none if there is none.
fn offset(text: &[u8]) -> Option<i64> {
    let fraction = match text.first() {
        Some(b'.' | b',') => 1 + text[1..].iter().take_while(|byte| byte.is_ascii_digit()).count(),
        _ => 0,
    };
    let zone = &text[fraction..];
    if zone.starts_with(b"Z") || zone.starts_with(b" UTC") {
        return Some(0);
    }
    let sign = match zone.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = zone.get(1..3).filter(|hours| hours.iter().all(u8::is_ascii_digit))?;
    let rest = zone[3..].strip_prefix(b":").unwrap_or_else(|| &zone[3..]);
    let minutes = rest.get(..2).filter(|minutes| minutes.iter().all(u8::is_ascii_digit))?;
    Some(sign * (number(hours) * 3600 + number(minutes) * 60))
}

/// UCX's `[1735787045.678901] `: seconds since 1970.
fn epoch(line: &[u8]) -> Option<i64> {
    let inner = line.strip_prefix(b"[")?;
    let digits = inner.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits != 10 || inner.get(digits) != Some(&b'.') {
        return None;
    }
    let seconds = number(&inner[..digits]);
    // The civil calendar, by years from March: leap days come last in them.
    let days = seconds / DAY + 719_468;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let months = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    Some(day(month, of_month)? * DAY + seconds % DAY)
}

#[cfg(test)]
mod tests;
