//! Logs on standard error, filtered by topic.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::SettingsError;

const VARIABLE: &str = "KVFERRY_LOG";

/// The root of our targets; the one of a topic is `kvferry::TOPIC`.
const ROOT: &str = "kvferry";

const TOPICS: [&str; 6] = ["register", "peer", "transfer", "path", "notify", "control"];

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

const ALLOWED: &str = "LEVEL or TOPIC=LEVEL, separated by commas; levels are off, error, warn, info, debug, trace, \
                       topics register, peer, transfer, path, notify, control";

/// Writes the logs of this process to standard error, as far as `KVFERRY_LOG` asks for them: a level for all,
/// or `topic=level`, separated by commas, such as `info,register=debug`. Without the variable it is `warn`.
///
/// Programs that have a `tracing` subscriber of their own need not call this; where one is installed already,
/// it stays, and only the variable is checked.
///
/// # Errors
/// `KVFERRY_LOG` names something that is neither a level nor a topic.
pub fn init_logging() -> Result<(), SettingsError> {
    let filter = log_filter()?;
    let stderr = std::io::stderr;
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    // Fails only where a subscriber is installed, and that one is to stay.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
    Ok(())
}

/// What `KVFERRY_LOG` asks for, for programs that show the logs in another way than [`init_logging`] does.
///
/// # Errors
/// As there.
pub fn log_filter() -> Result<Targets, SettingsError> {
    let value = std::env::var_os(VARIABLE);
    let value = value.as_deref().map(|value| value.to_string_lossy());
    filter(value.as_deref().unwrap_or_default())
}

fn filter(value: &str) -> Result<Targets, SettingsError> {
    let refuse = |problem: String| Err(SettingsError::new(VARIABLE, value, problem, ALLOWED));
    let mut all = LevelFilter::WARN;
    let mut topics = Vec::new();
    for item in value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (topic, level) = match item.split_once('=') {
            Some((topic, level)) => (Some(topic.trim()), level.trim()),
            None => (None, item),
        };
        let Some(&(_, filter)) = LEVELS.iter().find(|(name, _)| *name == level) else {
            return refuse(match topic {
                None if TOPICS.contains(&level) => format!("topic {level} has no level"),
                _ => format!("{level:?} is not a level"),
            });
        };
        match topic {
            None => all = filter,
            Some(topic) if TOPICS.contains(&topic) => {
                topics.push((format!("{ROOT}::{topic}"), filter));
            }
            Some(topic) => return refuse(format!("{topic:?} is not a topic")),
        }
    }
    // Other libraries of the process are not ours to make talkative.
    Ok(Targets::new().with_default(LevelFilter::WARN.min(all)).with_target(ROOT, all).with_targets(topics))
}

#[cfg(test)]
mod tests;
