//! What loggers and containers write before a message: times, levels, files, processes.
//!
//! Prefixes nest (Kubernetes around vLLM around UCX), so each round takes one piece off the front until none is
//! left. Hand-written: this runs on every line that may speak of an error.

use std::hash::{DefaultHasher, Hash, Hasher};

use memchr::{memchr, memmem};

/// A line has no more pieces of prefix than this.
const MOST_PIECES: usize = 16;
/// Longer groups in brackets are part of a message.
const LONGEST_GROUP: usize = 120;

/// How grave the logger says that a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    /// An error, or worse.
    Error,
    /// A warning.
    Warning,
    /// Anything less.
    Info,
}

/// A line without its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stripped<'a> {
    /// The message; blanks before it stay, for frames of tracebacks are known by them.
    pub(crate) text: &'a [u8],
    /// The level, if the prefix had one; the innermost counts.
    pub(crate) level: Option<Level>,
    /// Which of several interleaved writers, by what names them.
    pub(crate) writer: u64,
}

/// Takes the prefix off.
pub(crate) fn strip(line: &[u8]) -> Stripped<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut stripped = Stripped { text: line, level: None, writer: 0 };
    for _ in 0..MOST_PIECES {
        let before = stripped.text.len();
        piece(&mut stripped);
        if stripped.text.len() == before {
            break;
        }
    }
    stripped
}

fn piece(line: &mut Stripped<'_>) {
    let text = line.text;
    let Some(&first) = text.first() else { return };
    match first {
        b'[' | b'(' => group(line),
        b'0'..=b'9' => line.text = one_blank(after_number(text)),
        // UCX aligns its sources to the right.
        b' ' => {
            let rest = source(text.trim_ascii_start()).map(<[u8]>::trim_ascii_start);
            line.text = rest.filter(|rest| rest.starts_with(b"UCX ")).unwrap_or(text);
        }
        b'-' => line.text = text.strip_prefix(b"- ").unwrap_or(text),
        b't' if text.starts_with(b"time=") => logrus(line),
        b'l' if text.starts_with(b"libfabric:") => libfabric(line),
        _ => {
            if let Some((level, rest)) = level_word(text) {
                line.level = Some(level);
                line.text = rest;
            } else if let Some((level, rest)) = glog(text) {
                line.level = Some(level);
                line.text = rest;
            } else if let Some(rest) = syslog(text)
                .or_else(|| source(text))
                .or_else(|| stream(text))
                .or_else(|| ucx(text))
                .or_else(|| module(text))
            {
                line.text = rest;
            } else if let Some((name, rest)) = compose(text) {
                line.writer ^= hash(name);
                line.text = rest;
            }
        }
    }
}

/// `[…]` or `(…)` that tells a time, a process, a level or a source.
fn group(line: &mut Stripped<'_>) {
    let text = line.text;
    let close = if text[0] == b'[' { b']' } else { b')' };
    let Some(end) = memchr(close, &text[..text.len().min(LONGEST_GROUP)]) else { return };
    let inner = &text[1..end];
    let rest = one_blank(&text[end + 1..]);
    if let Some((level, b"")) = level_word(inner) {
        line.level = Some(level);
        line.text = rest;
        return;
    }
    let names_process = memmem::find(inner, b"pid=").is_some() || memmem::find(inner, b"rank").is_some();
    if close == b')' {
        if names_process {
            line.writer ^= hash(inner);
            line.text = rest;
        }
        return;
    }
    let is_pod = inner.starts_with(b"pod/");
    let has_digit = inner.iter().any(u8::is_ascii_digit);
    let is_time = inner.first().is_some_and(u8::is_ascii_digit)
        && inner.iter().filter(|byte| matches!(byte, b':' | b'.' | b'-' | b',')).count() > 0;
    // UCX pads its process: `[host:4711 :0]`.
    let is_padding = |pair: &[u8]| pair[0] != b' ' || matches!(pair[1], b' ' | b':');
    let is_place = has_digit && memchr(b':', inner).is_some() && inner.windows(2).all(is_padding);
    let is_padded = !inner.is_empty()
        && inner.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b' ' | b'.' | b','));
    let is_rank = inner.len() < 24
        && has_digit
        && [&b"TP"[..], b"DP", b"PP", b"rank", b"Rank", b"RANK", b"Gloo"]
            .iter()
            .any(|name| inner.starts_with(name));
    // spdlog's `[logger] [error]`.
    let is_logger = !has_digit
        && inner.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        && rest.strip_prefix(b"[").is_some_and(|next| {
            let end = memchr(b']', &next[..next.len().min(LONGEST_GROUP)]);
            end.is_some_and(|end| matches!(level_word(&next[..end]), Some((_, b""))))
        });
    if names_process || is_pod {
        line.writer ^= hash(inner);
    }
    if names_process || is_pod || is_time || is_place || is_padded || is_rank || is_logger {
        // mpirun's `[1,0]<stderr>:`
        let rest =
            rest.strip_prefix(b"<stderr>:").or_else(|| rest.strip_prefix(b"<stdout>:")).unwrap_or(rest);
        line.text = rest.strip_prefix(b": ").unwrap_or(rest);
    }
}

/// Times such as `2026-08-21T10:11:12.123Z`, `08-21 10:11:12`, `10:11:12,123`, and srun's `3: `.
fn after_number(text: &[u8]) -> &[u8] {
    let date = text.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'/')).unwrap_or(text.len());
    let is_date = date >= 5 && text[..date].iter().any(|byte| matches!(byte, b'-' | b'/'));
    let rest = if is_date { &text[date..] } else { text };
    let rest = if is_date {
        rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" ")).unwrap_or(rest)
    } else {
        rest
    };
    let clock = rest
        .iter()
        .position(|byte| !matches!(byte, b'0'..=b'9' | b':' | b'.' | b',' | b'+' | b'-'))
        .unwrap_or(rest.len());
    let colons = rest[..clock].iter().filter(|byte| **byte == b':').count();
    let is_clock = colons >= 2 && rest.len() > 7 && rest[2] == b':';
    if is_clock {
        let rest = &rest[clock..];
        let rest = rest.strip_prefix(b"Z").or_else(|| rest.strip_prefix(b" UTC")).unwrap_or(rest);
        return rest.strip_prefix(b" -").map_or(rest, |after| after);
    }
    // A rank: `3: message`.
    if !is_date
        && clock <= 5
        && rest[..clock].ends_with(b":")
        && colons == 1
        && rest.get(clock) == Some(&b' ')
    {
        return &rest[clock..];
    }
    text
}

/// `ERROR`, `WARNING:`, `error:`-less; upper case, or lower case with nothing behind it.
fn level_word(text: &[u8]) -> Option<(Level, &[u8])> {
    let length = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    let is_upper = word.iter().all(u8::is_ascii_uppercase);
    if !is_upper && !rest.is_empty() {
        return None;
    }
    let level = match word.to_ascii_uppercase().as_slice() {
        b"ERROR" | b"CRITICAL" | b"FATAL" | b"ERR" => Level::Error,
        b"WARN" | b"WARNING" => Level::Warning,
        b"INFO" | b"DEBUG" | b"TRACE" | b"DIAG" | b"NOTICE" | b"REQ" | b"DATA" => Level::Info,
        _ => return None,
    };
    // Python's default form: `ERROR:module.name:message`.
    if let Some(named) = rest.strip_prefix(b":") {
        let name = named
            .iter()
            .position(|byte| !matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.'));
        if let Some(name) = name.filter(|name| *name > 0 && named.get(*name) == Some(&b':')) {
            return Some((level, &named[name + 1..]));
        }
        return Some((level, one_blank(named)));
    }
    if !rest.is_empty() && !rest.starts_with(b" ") && !rest.starts_with(b"\t") {
        return None;
    }
    let mut rest = rest.trim_ascii_start();
    if let Some(after) = rest.strip_prefix(b"- ") {
        rest = after;
    }
    Some((level, rest))
}

/// `E0821 10:11:12.123456   123 file.cpp:1] ` of glog, klog and absl; NIXL writes the year, too.
fn glog(text: &[u8]) -> Option<(Level, &[u8])> {
    let level = match text.first()? {
        b'E' | b'F' => Level::Error,
        b'W' => Level::Warning,
        b'I' => Level::Info,
        _ => return None,
    };
    let digits = text[1..].iter().position(|byte| !byte.is_ascii_digit())?;
    if !(4..=8).contains(&digits) {
        return None;
    }
    let rest = text[1 + digits..].strip_prefix(b" ")?;
    let clock = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b':' | b'.'))?;
    memchr(b':', &rest[..clock])?;
    let rest = rest[clock..].trim_ascii_start();
    let thread = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    Some((level, rest[thread..].trim_ascii_start()))
}

/// `file.cpp:123] `, `file.c:246  ` or `core.py:708] `; several, and after UCX's own blank.
fn source(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(
        |byte| !matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'/' | b'-' | b'+'),
    )?;
    let name = &text[..end];
    let extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let known: &[&[u8]] =
        &[b"c", b"cc", b"cpp", b"cu", b"cxx", b"h", b"hpp", b"cuh", b"inl", b"py", b"rs", b"go"];
    if name.len() == extension.len() || !known.contains(&extension) {
        return None;
    }
    let rest = text[end..].strip_prefix(b":")?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).filter(|digits| *digits > 0)?;
    let rest = &rest[digits..];
    let rest = rest.strip_prefix(b"]").or_else(|| rest.strip_prefix(b":")).unwrap_or(rest);
    rest.starts_with(b" ")
        .then(|| if rest.starts_with(b"  ") { rest.trim_ascii_start() } else { one_blank(rest) })
}

/// The `UCX` between UCX's source and level.
fn ucx(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"UCX")?;
    let rest = rest.strip_prefix(b" ")?.trim_ascii_start();
    level_word(rest).map(|_| rest)
}

/// The stream of a line of a container runtime: `stderr F `.
fn stream(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"stderr ").or_else(|| text.strip_prefix(b"stdout "))?;
    rest.strip_prefix(b"F ").or_else(|| rest.strip_prefix(b"P "))
}

/// `Aug 21 10:11:12 host kernel: ` and `Thu Aug 21 10:11:12 2026`.
fn syslog(text: &[u8]) -> Option<&[u8]> {
    const MONTHS: &[&[u8]] =
        &[b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    if let Some(rest) = text.strip_prefix(b"kernel: ") {
        return Some(rest);
    }
    if !MONTHS.contains(&text.get(..3)?) || text.get(3) != Some(&b' ') {
        return None;
    }
    let rest = text[4..].trim_ascii_start();
    let day = rest.iter().position(|byte| !byte.is_ascii_digit()).filter(|day| *day > 0)?;
    let rest = rest[day..].strip_prefix(b" ")?;
    let clock = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b':' | b'.'))?;
    let rest = rest[clock..].strip_prefix(b" ")?;
    // The host, then `name[pid]: `.
    let host = memchr(b' ', rest)?;
    let tagged = &rest[host + 1..];
    let tag = memchr(b' ', tagged).filter(|tag| tagged[..*tag].ends_with(b":"));
    Some(tag.map_or(tagged, |tag| &tagged[tag + 1..]))
}

/// The target of a line of tracing: `dynamo_llm::block_manager::worker: `.
fn module(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|byte| !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b':'))?;
    let path = text[..end].strip_suffix(b":")?;
    (memmem::find(path, b"::").is_some() && text[end] == b' ').then(|| &text[end + 1..])
}

/// `prefill-1  | ` of docker compose.
fn compose(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text
        .iter()
        .position(|byte| !matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.'))?;
    let rest = text[end..].strip_prefix(b" ")?.trim_ascii_start().strip_prefix(b"|")?;
    Some((&text[..end], one_blank(rest)))
}

/// `time="…" level=error msg="…"`
fn logrus<'a>(line: &mut Stripped<'a>) {
    let text: &'a [u8] = line.text;
    if let Some(at) = memmem::find(text, b"level=") {
        let word = &text[at + 6..];
        let end = word.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(word.len());
        line.level = level_word(&word[..end]).map(|(level, _)| level).or(line.level);
    }
    if let Some(at) = memmem::find(text, b"msg=") {
        let message = &text[at + 4..];
        line.text = message.strip_prefix(b"\"").unwrap_or(message);
    }
}

/// `libfabric:123:1705531788::efa:mr:efa_mr_reg_impl():850<warn> `
fn libfabric<'a>(line: &mut Stripped<'a>) {
    let text: &'a [u8] = line.text;
    let Some(open) = memchr(b'<', &text[..text.len().min(LONGEST_GROUP)]) else { return };
    let Some(close) = memchr(b'>', &text[open..]) else { return };
    line.level = match &text[open + 1..open + close] {
        b"warn" => Some(Level::Error), // its name for failures
        _ => Some(Level::Info),
    };
    line.text = one_blank(&text[open + close + 1..]);
}

fn one_blank(text: &[u8]) -> &[u8] {
    text.strip_prefix(b" ").unwrap_or(text)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
