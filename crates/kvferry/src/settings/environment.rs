//! Reading the settings from the environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use super::value::{parse_duration, parse_size};
use super::{PathSet, Ptracer, Settings, Token, check, document};
use crate::error::SettingsError;

/// How far a name may be from one of ours and still be taken for a misspelling of it.
const MISSPELT: usize = 2;
const PREFIX: &str = "KVFERRY_";

const DURATIONS: &str = "a whole number with ns, us, ms, s or m, such as 3s or 200ms";
const SIZES: &str = "a whole number of bytes, or with KiB, MiB or GiB, such as 16KiB; 0 for none";

/// The settings from the variables that `lookup` finds.
pub(super) fn read(lookup: impl Fn(&'static str) -> Option<OsString>) -> Result<Settings, SettingsError> {
    let environment = Environment(lookup);
    let default = Settings::default();
    let settings = Settings {
        address: environment.text("KVFERRY_ADDRESS")?,
        net_devices: environment.list("KVFERRY_NET_DEVICES")?,
        port_range: environment.parsed("KVFERRY_PORT_RANGE", parse_ports)?,
        socket_dir: environment.text("KVFERRY_SOCKET_DIR")?.map(PathBuf::from),
        peer_timeout: environment.parsed("KVFERRY_PEER_TIMEOUT", duration)?.unwrap_or(default.peer_timeout),
        connect_timeout: environment
            .parsed("KVFERRY_CONNECT_TIMEOUT", duration)?
            .unwrap_or(default.connect_timeout),
        cancel_timeout: environment
            .parsed("KVFERRY_CANCEL_TIMEOUT", duration)?
            .unwrap_or(default.cancel_timeout),
        threads: environment.parsed("KVFERRY_THREADS", number)?.unwrap_or(default.threads),
        inline_limit: environment.parsed("KVFERRY_INLINE_LIMIT", size)?.unwrap_or(default.inline_limit),
        spin: environment.parsed("KVFERRY_SPIN", duration)?.unwrap_or(default.spin),
        queue_depth: environment.parsed("KVFERRY_QUEUE_DEPTH", number)?.unwrap_or(default.queue_depth),
        collapse: environment.parsed("KVFERRY_COLLAPSE", switch)?.unwrap_or(default.collapse),
        ptracer: environment.parsed("KVFERRY_PTRACER", ptracer)?.unwrap_or(default.ptracer),
        token: environment.token("KVFERRY_TOKEN")?,
        require: environment.paths("KVFERRY_REQUIRE")?,
        forbid: environment.paths("KVFERRY_FORBID")?,
    };
    settings.check()?;
    Ok(settings)
}

/// Warns of variables that look like a misspelt one of ours. An error would be too much: other programs may
/// have `KVFERRY_` variables of their own.
pub(super) fn warn_of_misspelt(variables: impl Iterator<Item = (OsString, OsString)>) {
    for (name, _) in variables {
        let Some(name) = name.to_str() else { continue };
        if let Some(meant) = misspelt(name) {
            tracing::warn!(target: "kvferry::control", "{name} is not a setting; did you mean {meant}?");
        }
    }
}

/// Our variable that `name` comes close to without being one.
pub(super) fn misspelt(name: &str) -> Option<&'static str> {
    let ours = || document::TABLE.iter().map(|doc| doc.variable);
    if !name.starts_with(PREFIX) || ours().any(|variable| variable == name) {
        return None;
    }
    ours().find(|variable| distance(variable, name) <= MISSPELT)
}

struct Environment<L>(L);

impl<L: Fn(&'static str) -> Option<OsString>> Environment<L> {
    /// The variable's text with blanks around it cut off.
    fn text(&self, variable: &'static str) -> Result<Option<String>, SettingsError> {
        let Some(value) = (self.0)(variable) else {
            return Ok(None);
        };
        match value.to_str().map(str::trim) {
            Some("") => Err(SettingsError::new(
                variable,
                "",
                "is empty",
                format!("{}; unset it for the default", allowed(variable)),
            )),
            Some(text) => Ok(Some(text.to_owned())),
            None => {
                Err(SettingsError::new(variable, value.to_string_lossy(), "is not UTF-8", allowed(variable)))
            }
        }
    }

    fn parsed<T>(
        &self,
        variable: &'static str,
        parse: impl FnOnce(&'static str, &str) -> Result<T, SettingsError>,
    ) -> Result<Option<T>, SettingsError> {
        let text = self.text(variable)?;
        text.map(|text| parse(variable, &text)).transpose()
    }

    /// The items between commas; a list may be empty.
    fn list(&self, variable: &'static str) -> Result<Vec<String>, SettingsError> {
        if (self.0)(variable).is_some_and(|value| value.is_empty()) {
            return Ok(Vec::new());
        }
        let text = self.text(variable)?.unwrap_or_default();
        let items = text.split(',').map(str::trim);
        Ok(items.filter(|item| !item.is_empty()).map(str::to_owned).collect())
    }

    fn paths(&self, variable: &'static str) -> Result<PathSet, SettingsError> {
        let names = self.list(variable)?.join(",");
        PathSet::from_str(&names).map_err(|unknown| {
            let problem = format!("{:?} is not the name of a path", unknown.0);
            SettingsError::new(variable, names.as_str(), problem, allowed(variable))
        })
    }

    /// The secret as it is, blanks and all. No error shows it.
    fn token(&self, variable: &'static str) -> Result<Option<Token>, SettingsError> {
        let Some(value) = (self.0)(variable) else {
            return Ok(None);
        };
        let bad = |problem: &str| SettingsError {
            variable,
            value: None,
            problem: problem.to_owned(),
            allowed: allowed(variable).to_owned(),
        };
        let Some(text) = value.to_str() else {
            return Err(bad("is not UTF-8"));
        };
        if text.is_empty() {
            // A template that expands to nothing must not switch the secret off unseen.
            return Err(bad("is empty; unset it to go without a token"));
        }
        if text.chars().any(char::is_control) {
            return Err(bad("holds a line break or another control character"));
        }
        Ok(Some(Token::new(text)))
    }
}

/// What the documentation says is allowed.
fn allowed(variable: &str) -> &'static str {
    document::TABLE.iter().find(|doc| doc.variable == variable).map_or("", |doc| doc.allowed)
}

fn duration(variable: &'static str, text: &str) -> Result<std::time::Duration, SettingsError> {
    parse_duration(text).map_err(|problem| SettingsError::new(variable, text, problem, DURATIONS))
}

fn size(variable: &'static str, text: &str) -> Result<u64, SettingsError> {
    parse_size(text).map_err(|problem| SettingsError::new(variable, text, problem, SIZES))
}

fn number(variable: &'static str, text: &str) -> Result<usize, SettingsError> {
    text.parse().map_err(|_| SettingsError::new(variable, text, "not a whole number", allowed(variable)))
}

fn switch(variable: &'static str, text: &str) -> Result<bool, SettingsError> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(SettingsError::new(variable, text, "neither on nor off", allowed(variable))),
    }
}

fn ptracer(variable: &'static str, text: &str) -> Result<Ptracer, SettingsError> {
    match text {
        "peer" => Ok(Ptracer::Peer),
        "any" => Ok(Ptracer::Any),
        "never" => Ok(Ptracer::Never),
        _ => Err(SettingsError::new(variable, text, "unknown", allowed(variable))),
    }
}

fn parse_ports(_: &'static str, text: &str) -> Result<(u16, u16), SettingsError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) => Ok((first, last)),
        _ => Err(check::bad_ports(text)),
    }
}

/// Levenshtein's distance, by letters.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
