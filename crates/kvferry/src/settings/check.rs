//! What the value of each setting may be.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use super::value::{show_duration, show_size};
use super::{PathName, Settings};
use crate::error::SettingsError;

/// Most copy threads: each has its own busy word in the page that two agents of a host share.
const MAX_THREADS: usize = 32;
/// Most bytes that `post` may copy itself: one chunk.
const MAX_INLINE: u64 = 2 << 20;
/// Longer, and a sleep would cost less than the spin.
const MAX_SPIN: Duration = Duration::from_millis(1);
const MAX_QUEUE: usize = 65_535;
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// A Unix socket's path holds 107 bytes; the rest is for the socket's own name.
const MAX_SOCKET_DIR: usize = 64;
const MAX_NAME: usize = 253;

pub(super) fn all(settings: &Settings) -> Result<(), SettingsError> {
    if let Some(name) = &settings.address {
        address(name)?;
    }
    for name in &settings.net_devices {
        device(name)?;
    }
    if let Some(range) = settings.port_range {
        ports(range)?;
    }
    if let Some(directory) = &settings.socket_dir {
        socket_dir(directory)?;
    }
    timeout("KVFERRY_PEER_TIMEOUT", settings.peer_timeout, 100)?;
    timeout("KVFERRY_CONNECT_TIMEOUT", settings.connect_timeout, 10)?;
    timeout("KVFERRY_CANCEL_TIMEOUT", settings.cancel_timeout, 0)?;
    count("KVFERRY_THREADS", settings.threads, MAX_THREADS)?;
    count("KVFERRY_QUEUE_DEPTH", settings.queue_depth, MAX_QUEUE)?;
    if settings.inline_limit > MAX_INLINE {
        return Err(SettingsError::new(
            "KVFERRY_INLINE_LIMIT",
            show_size(settings.inline_limit),
            "too large",
            format!("0 to {}", show_size(MAX_INLINE)),
        ));
    }
    if settings.spin > MAX_SPIN {
        return Err(SettingsError::new(
            "KVFERRY_SPIN",
            show_duration(settings.spin),
            "too long",
            format!("0 to {}", show_duration(MAX_SPIN)),
        ));
    }
    no_path_both_ways(settings)
}

fn address(name: &str) -> Result<(), SettingsError> {
    let bad = |problem: &str| {
        Err(SettingsError::new(
            "KVFERRY_ADDRESS",
            name,
            problem,
            "a host name or an IP address that peers can reach, without a port",
        ))
    };
    if name.is_empty() {
        return bad("is empty");
    }
    if matches!(name, "0.0.0.0" | "::" | "*") {
        return bad("is the wildcard, which no peer can reach");
    }
    if name.contains(':') && name.parse::<Ipv6Addr>().is_err() {
        return bad("is not an IPv6 address and names a port");
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_:".contains(letter);
    if name.len() > MAX_NAME || !name.chars().all(plain) {
        return bad("is not a host name");
    }
    Ok(())
}

fn device(name: &str) -> Result<(), SettingsError> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._:-".contains(letter);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(plain) {
        return Ok(());
    }
    Err(SettingsError::new(
        "KVFERRY_NET_DEVICES",
        name,
        "is not the name of a device",
        "names such as eth0 or mlx5_0:1, separated by commas",
    ))
}

fn ports((first, last): (u16, u16)) -> Result<(), SettingsError> {
    if 0 < first && first <= last {
        return Ok(());
    }
    Err(bad_ports(&format!("{first}-{last}")))
}

pub(super) fn bad_ports(text: &str) -> SettingsError {
    SettingsError::new(
        "KVFERRY_PORT_RANGE",
        text,
        "is not a range of ports",
        "FIRST-LAST with 1 <= FIRST <= LAST <= 65535, or one port",
    )
}

fn socket_dir(directory: &Path) -> Result<(), SettingsError> {
    let bad = |problem: &str| {
        Err(SettingsError::new(
            "KVFERRY_SOCKET_DIR",
            directory.display().to_string(),
            problem,
            format!("the absolute path of a directory that exists, at most {MAX_SOCKET_DIR} bytes"),
        ))
    };
    if !directory.is_absolute() {
        return bad("is not an absolute path");
    }
    if directory.as_os_str().len() > MAX_SOCKET_DIR {
        return bad("is too long to hold a Unix socket");
    }
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => bad("is not a directory"),
        Err(error) => bad(&format!("cannot be used: {error}")),
    }
}

fn timeout(variable: &'static str, value: Duration, least_ms: u64) -> Result<(), SettingsError> {
    let least = Duration::from_millis(least_ms);
    let problem = if value < least {
        "too short"
    } else if value > MAX_TIMEOUT {
        "too long"
    } else {
        return Ok(());
    };
    let (least, most) = (show_duration(least), show_duration(MAX_TIMEOUT));
    Err(SettingsError::new(variable, show_duration(value), problem, format!("{least} to {most}")))
}

fn count(variable: &'static str, value: usize, most: usize) -> Result<(), SettingsError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(SettingsError::new(
        variable,
        value.to_string(),
        if value == 0 { "is zero" } else { "too large" },
        format!("1 to {most}"),
    ))
}

fn no_path_both_ways(settings: &Settings) -> Result<(), SettingsError> {
    let both: Vec<&str> = settings
        .require
        .iter()
        .filter(|name| settings.forbid.contains(*name))
        .map(PathName::as_str)
        .collect();
    if both.is_empty() {
        return Ok(());
    }
    Err(SettingsError::new(
        "KVFERRY_REQUIRE",
        settings.require.to_string(),
        format!("KVFERRY_FORBID forbids {}", both.join(",")),
        "names that KVFERRY_FORBID does not hold",
    ))
}
