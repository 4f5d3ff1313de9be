//! The path that is asked for, as settings of the agents.

use anyhow::{Result, bail};
use kvferry::{PathName, PathSet, Settings};

use crate::control::PathChoice;

/// Where two processes of one host meet over TCP.
pub(crate) const LOOPBACK: &str = "127.0.0.1";

/// The settings with a path and an address in them.
///
/// # Errors
/// They leave no way for the path.
pub(crate) fn settings(
    mut settings: Settings,
    path: Option<PathChoice>,
    address: Option<&str>,
) -> Result<Settings> {
    if let Some(address) = address {
        settings.address = Some(address.to_owned());
    }
    let Some(path) = path else { return Ok(settings) };
    let name = match path {
        PathChoice::SameHost => PathName::SameHost,
        PathChoice::Tcp => PathName::Tcp,
    };
    let Settings { require, forbid, .. } = &settings;
    if forbid.contains(name) {
        bail!("--path {name} is asked for, but KVFERRY_FORBID={forbid} forbids it; change one of them");
    }
    let others = !require.paths().is_empty() && !require.contains(name);
    // Mechanisms have names on one host only.
    if others || path == PathChoice::Tcp && !require.mechanisms().is_empty() {
        bail!(
            "--path {name} is asked for, but KVFERRY_REQUIRE={require} allows no {name}; change one of them"
        );
    }
    settings.require = require.mechanisms().iter().collect::<PathSet>().with(name);
    Ok(settings)
}

/// Whether the environment says where peers are to connect.
pub(crate) fn is_addressed() -> bool {
    ["KVFERRY_ADDRESS", "KVFERRY_NET_DEVICES"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(require: &str, forbid: &str, path: PathChoice) -> Result<String, String> {
        let given = Settings {
            require: require.parse().expect("names"),
            forbid: forbid.parse().expect("names"),
            ..Settings::default()
        };
        let settings = settings(given, Some(path), None).map_err(|error| error.to_string())?;
        Ok(settings.require.to_string())
    }

    #[test]
    fn the_path_is_required_beside_what_the_environment_says() {
        assert_eq!(chosen("", "", PathChoice::Tcp).as_deref(), Ok("tcp"));
        assert_eq!(chosen("cma", "", PathChoice::SameHost).as_deref(), Ok("same_host,cma"));
        assert_eq!(chosen("same_host,tcp", "map", PathChoice::Tcp).as_deref(), Ok("tcp"));
    }

    #[test]
    fn what_contradicts_the_environment_is_refused_by_name() {
        let refused = |require, forbid, path| chosen(require, forbid, path).expect_err("a contradiction");
        assert!(refused("", "tcp", PathChoice::Tcp).contains("KVFERRY_FORBID=tcp"));
        assert!(
            refused("same_host", "", PathChoice::Tcp).contains("KVFERRY_REQUIRE=same_host allows no tcp")
        );
        assert!(refused("map", "", PathChoice::Tcp).contains("KVFERRY_REQUIRE=map"));
    }

    #[test]
    fn an_address_is_taken_over_and_nothing_else_changed() {
        let given = Settings { threads: 7, ..Settings::default() };
        let settings = settings(given.clone(), None, Some(LOOPBACK)).expect("settings");
        assert_eq!(settings, Settings { address: Some(LOOPBACK.into()), ..given });
    }
}
