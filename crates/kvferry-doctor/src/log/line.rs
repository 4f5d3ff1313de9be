//! Bytes of a line that are no text: colours, carriage returns, containers' JSON.

use std::borrow::Cow;

use memchr::memchr;

/// Removes escape sequences of terminals; borrowed if there are none. Newlines stay, so lines keep their numbers.
pub(crate) fn clean(block: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(0x1b, block) else { return Cow::Borrowed(block) };
    let mut kept = Vec::with_capacity(block.len());
    kept.extend_from_slice(&block[..first]);
    let mut rest = &block[first..];
    while !rest.is_empty() {
        rest = &rest[escape(rest)..];
        let next = memchr(0x1b, rest).unwrap_or(rest.len());
        kept.extend_from_slice(&rest[..next]);
        rest = &rest[next..];
    }
    Cow::Owned(kept)
}

/// The length of the sequence that `text` begins with: CSI up to its final byte, OSC up to BEL or ST, else two
/// bytes. None reaches over a line's end.
fn escape(text: &[u8]) -> usize {
    let line = &text[..memchr(b'\n', text).unwrap_or(text.len())];
    match line.get(1) {
        Some(b'[') => {
            let end = line[2..].iter().position(|byte| !matches!(byte, 0x20..=0x3f));
            end.map_or(line.len(), |end| (end + 3).min(line.len()))
        }
        Some(b']') => {
            let end = line.iter().position(|byte| *byte == 0x07);
            let end = end.or_else(|| line.windows(2).position(|pair| pair == b"\x1b\\").map(|at| at + 1));
            end.map_or(line.len(), |end| end + 1)
        }
        Some(_) => 2,
        None => line.len().max(1),
    }
}

/// The message of a line of Docker's `json-file` driver, `{"log":"…\n","stream":…}`.
pub(crate) fn unescape_json(line: &[u8]) -> Option<Vec<u8>> {
    let inner = line.trim_ascii_start().strip_prefix(b"{\"log\":\"")?;
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return Some(text),
            b'\\' => match bytes.next()? {
                b'n' | b'r' => {}
                b't' => text.push(b'\t'),
                b'u' => {
                    let digits: Vec<u8> = bytes.by_ref().take(4).collect();
                    let number = u32::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
                    let letter = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
                    // An escape sequence of a terminal, written as \u001b.
                    text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
    // Cut off in the middle: what is there is the message.
    Some(text)
}
