//! `kvferry codes`: the catalogue of error codes.

use std::process::ExitCode;

use anyhow::Result;
use kvferry::Code;

use crate::{NONSENSE, output};

/// Lists all codes or those of a family, or explains one.
pub(crate) fn show(wanted: Option<&str>) -> Result<ExitCode> {
    let Some(wanted) = wanted.map(str::trim) else {
        output::print(&list(Code::all()))?;
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(code) = Code::find(wanted) {
        let Code { code, summary, remedy, .. } = code;
        output::print(&format!("{code}\n\n{summary}\n\nWhat to do: {remedy}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let family: Vec<_> = Code::all().iter().filter(|code| family(code.code) == wanted).copied().collect();
    if !family.is_empty() {
        output::print(&list(&family))?;
        return Ok(ExitCode::SUCCESS);
    }
    let near = nearest(wanted);
    let hint = match near.as_slice() {
        [] => "`kvferry codes` lists them all".to_owned(),
        near => format!("near it: {}", near.join(", ")),
    };
    output::complain(&format!("error: there is no code {wanted:?}; {hint}"));
    Ok(ExitCode::from(NONSENSE))
}

fn list(codes: &[Code]) -> String {
    let rows: Vec<_> = codes.iter().map(|code| [code.code, code.summary]).collect();
    output::columns(&rows)
}

fn family(code: &str) -> &str {
    code.split('.').next().unwrap_or(code)
}

/// Up to three codes that may have been meant: those that hold the word, else those spelt alike.
fn nearest(wanted: &str) -> Vec<&'static str> {
    // What a human types is short; comparing is quadratic.
    let wanted: String = wanted.chars().take(64).flat_map(char::to_lowercase).collect();
    let codes = || Code::all().iter().map(|code| code.code);
    let mut near: Vec<_> = codes().filter(|code| wanted.len() > 2 && code.contains(&wanted)).collect();
    if near.is_empty() {
        let mut scored: Vec<_> = codes()
            .map(|code| {
                let cause = code.rsplit('.').next().unwrap_or(code);
                let alike = |name| strsim::normalized_damerau_levenshtein(name, &wanted);
                (alike(code).max(alike(cause)), code)
            })
            .filter(|(score, _)| *score >= 0.6)
            .collect();
        scored.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        near = scored.into_iter().map(|(_, code)| code).collect();
    }
    near.truncate(3);
    near
}

#[cfg(test)]
mod tests;
