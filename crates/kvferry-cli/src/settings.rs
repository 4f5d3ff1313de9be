//! `kvferry settings`: the settings as an agent of this environment would have them.

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use kvferry::Settings;

use crate::{NONSENSE, output};

/// Prints the table, or what is wrong with the environment.
pub(crate) fn show() -> Result<ExitCode> {
    if let Err(error) = kvferry::init_logging().and_then(|()| Settings::from_env()) {
        output::complain(&format!("error: {error}"));
        return Ok(ExitCode::from(NONSENSE));
    }
    let rows: Vec<_> = Settings::documentation()
        .iter()
        .map(|doc| {
            let given = env::var(doc.variable).ok();
            let (value, origin) = match given {
                Some(_) if doc.variable == "KVFERRY_TOKEN" => ("(hidden)".to_owned(), "environment"),
                Some(value) => (value.trim().to_owned(), "environment"),
                None => (doc.default.to_owned(), "default"),
            };
            (doc, value, origin)
        })
        .collect();
    let mut table = vec![["setting", "value", "from", "meaning"]];
    table.extend(rows.iter().map(|(doc, value, origin)| [doc.variable, value, origin, doc.meaning]));
    output::print(&output::columns(&table))?;
    Ok(ExitCode::SUCCESS)
}
