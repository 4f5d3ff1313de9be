//! System errors in lines: by name, by text, and by number where the line says that it is one.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};
use regex::bytes::Regex;

use crate::rule::compile;

/// Number, name, and the text of the C library.
const TABLE: &[(u16, &str, &str)] = &[
    (1, "EPERM", "Operation not permitted"),
    (2, "ENOENT", "No such file or directory"),
    (3, "ESRCH", "No such process"),
    (4, "EINTR", "Interrupted system call"),
    (5, "EIO", "Input/output error"),
    (6, "ENXIO", "No such device or address"),
    (7, "E2BIG", "Argument list too long"),
    (9, "EBADF", "Bad file descriptor"),
    (11, "EAGAIN", "Resource temporarily unavailable"),
    (12, "ENOMEM", "Cannot allocate memory"),
    (13, "EACCES", "Permission denied"),
    (14, "EFAULT", "Bad address"),
    (16, "EBUSY", "Device or resource busy"),
    (17, "EEXIST", "File exists"),
    (19, "ENODEV", "No such device"),
    (22, "EINVAL", "Invalid argument"),
    (23, "ENFILE", "Too many open files in system"),
    (24, "EMFILE", "Too many open files"),
    (25, "ENOTTY", "Inappropriate ioctl for device"),
    (28, "ENOSPC", "No space left on device"),
    (32, "EPIPE", "Broken pipe"),
    (34, "ERANGE", "Numerical result out of range"),
    (38, "ENOSYS", "Function not implemented"),
    (61, "ENODATA", "No data available"),
    (71, "EPROTO", "Protocol error"),
    (93, "EPROTONOSUPPORT", "Protocol not supported"),
    (95, "EOPNOTSUPP", "Operation not supported"),
    (97, "EAFNOSUPPORT", "Address family not supported"),
    (98, "EADDRINUSE", "Address already in use"),
    (99, "EADDRNOTAVAIL", "Cannot assign requested address"),
    (100, "ENETDOWN", "Network is down"),
    (101, "ENETUNREACH", "Network is unreachable"),
    (104, "ECONNRESET", "Connection reset by peer"),
    (107, "ENOTCONN", "Transport endpoint is not connected"),
    (110, "ETIMEDOUT", "Connection timed out"),
    (111, "ECONNREFUSED", "Connection refused"),
    (112, "EHOSTDOWN", "Host is down"),
    (113, "EHOSTUNREACH", "No route to host"),
    (121, "EREMOTEIO", "Remote I/O error"),
    // Kernel internal; reaches user space from drivers without an operation.
    (524, "ENOTSUPP", "Unknown error 524"),
];

/// Other names of the same errors.
const ALIASES: &[(&str, &str)] = &[("EWOULDBLOCK", "EAGAIN"), ("ENOTSUP", "EOPNOTSUPP")];

/// Who counts errors in numbers of its own: `CUDA error 2`, `exit status 1`, `vendor err 5`.
const OTHERS: &[&str] =
    &["acl", "cuda", "exit", "grpc", "hccl", "hip", "http", "mpi", "nccl", "rccl", "vend", "vendor"];

/// A number that is said to be an error: `errno: 110`, `error 14`, `err(-11)`, `rc=-12`, `ret -22`; or `[12]`, `(22)`. The
/// beginning of an address is none.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\b(?:errno|err|error|rc|ret|status|returned)\b\s?(?:code)?\s?[:=(]{0,2}\s?-?(\d{1,3})(?:[^\w.:]|[.:](?:\W|$)|$)|\[-?(\d{1,3})\]|\(-?(\d{1,3})\)",
    )
});
static NAME: LazyLock<Regex> = LazyLock::new(|| compile(r"\bE[A-Z0-9]{3,14}\b"));
/// The texts, of which one may begin another.
static TEXT: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let texts: Vec<_> = TABLE.iter().map(|(_, _, text)| *text).collect();
    let built = AhoCorasickBuilder::new()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .match_kind(MatchKind::LeftmostLongest)
        .build(texts);
    match built {
        Ok(automaton) => automaton,
        Err(error) => unreachable!("some dozen short texts: {error}"),
    }
});

/// The error that a line names, by its name: text before name before number.
pub(crate) fn find(line: &[u8]) -> Option<&'static str> {
    by_words(line).or_else(|| {
        NUMBER.captures_iter(line).find_map(|found| {
            if is_of_another(&line[..found.get(0)?.start()]) {
                return None;
            }
            let digits = (1..found.len()).find_map(|group| found.get(group))?;
            let number: u16 = std::str::from_utf8(digits.as_bytes()).ok()?.parse().ok()?;
            TABLE.iter().find(|(known, _, _)| *known == number).map(|(_, name, _)| *name)
        })
    })
}

/// Whether the word that a line ends with so far names one who counts errors in numbers of its own.
fn is_of_another(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let letters = line.iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let word = &line[line.len() - letters..];
    OTHERS.iter().any(|other| word.eq_ignore_ascii_case(other.as_bytes()))
}

/// Whether the numbers of a line may decide which error it names.
pub(crate) fn hangs_on_numbers(line: &[u8]) -> bool {
    match by_words(line) {
        Some(name) => name == "ENOTSUPP",
        None => NUMBER.is_match(line),
    }
}

fn by_words(line: &[u8]) -> Option<&'static str> {
    if let Some(found) = TEXT.find(line) {
        return TABLE.get(found.pattern().as_usize()).map(|(_, name, _)| *name);
    }
    NAME.find_iter(line).find_map(|found| canonical(std::str::from_utf8(found.as_bytes()).ok()?))
}

/// The table's name of an error.
pub(crate) fn canonical(name: &str) -> Option<&'static str> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    TABLE.iter().find(|(_, known, _)| *known == name).map(|(_, known, _)| *known)
}

#[cfg(test)]
mod tests;
