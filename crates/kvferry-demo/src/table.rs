//! The table at the end.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use indicatif::{HumanBytes, HumanCount};

use crate::outcome::Outcome;
use crate::verify::Track;

/// The figures of a run, one a row.
pub(crate) fn figures(outcome: &Outcome, layers: usize, block_bytes: usize) -> String {
    let mut rows: Vec<(&str, String)> = vec![(
        "tokens",
        format!(
            "{} of prompt, {} of answer",
            count(outcome.prompt_tokens),
            count(outcome.answer_tokens.unwrap_or_default())
        ),
    )];
    rows.push((
        "pages",
        format!("{} of {} tokens, in {layers} layers", count(outcome.pages), outcome.page_size),
    ));
    if let (Some(blocks), Some(merged)) = (outcome.blocks, outcome.merged_blocks) {
        rows.push((
            "blocks",
            format!(
                "{} of {}, {} after merging",
                HumanCount(blocks),
                HumanBytes(block_bytes as u64),
                HumanCount(merged)
            ),
        ));
    }
    if let Some(bytes) = outcome.kv_bytes {
        rows.push(("bytes", format!("{} ({})", HumanCount(bytes), HumanBytes(bytes))));
    }
    if let (Some(path), Some(mechanism)) = (&outcome.path, &outcome.mechanism) {
        rows.push(("path", format!("{path}, {mechanism}")));
    }
    let links = outcome.links.iter().map(|link| {
        let at = link.address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
        format!("{} to {}{at}: {}, {}", link.from, link.to, link.path, link.mechanism)
    });
    rows.push(("links", links.collect::<Vec<_>>().join("\n")));
    if let (Some(time), Some(hidden), Some(transfers)) =
        (outcome.transfer_ms, outcome.hidden_ms, outcome.transfers)
    {
        let share = if time > 0.0 { 100.0 * hidden / time } else { 0.0 };
        rows.push((
            "transfer",
            format!("{time:.1} ms in {transfers} transfers, {hidden:.1} ms ({share:.0} %) behind compute"),
        ));
    }
    if let Some(gbps) = outcome.gbps {
        rows.push(("speed", format!("{gbps:.2} GB/s")));
    }
    if let (Some(split), Some(alone)) = (outcome.ttft_ms, outcome.ttft_alone_ms) {
        rows.push(("first token", format!("after {split:.0} ms split, {alone:.0} ms alone")));
    }
    if let Some(speed) = outcome.decode_tokens_per_s {
        rows.push(("decode", format!("{speed:.1} tokens/s")));
    }
    let mut table = table();
    for (name, value) in rows {
        table.add_row([name, &value]);
    }
    table.to_string()
}

/// One row a request.
pub(crate) fn requests(prompts: &[Vec<u32>], page_size: usize, tracks: &[Track]) -> String {
    let mut table = table();
    table.set_header(["request", "prompt tokens", "pages", "answer tokens", "logits"]);
    for (request, (prompt, track)) in prompts.iter().zip(tracks).enumerate() {
        table.add_row([
            request.to_string(),
            count(prompt.len()),
            count(prompt.len().div_ceil(page_size)),
            count(track.tokens.len()),
            track.logits.map_or_else(String::new, |hash| hash.short()),
        ]);
    }
    table.to_string()
}

/// A number with its thousands set apart.
pub(crate) fn count(number: usize) -> String {
    HumanCount(number as u64).to_string()
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table
}
