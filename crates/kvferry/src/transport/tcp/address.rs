//! Which address an agent listens on, and tells its peers.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    os::fd::OwnedFd,
};

use crate::settings::Settings;

/// A destination that is never sent to (TEST-NET-1 and its IPv6 counterpart): it only asks which way packets would leave.
const ELSEWHERE: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];

/// Why no address could be listened on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("KVFERRY_ADDRESS={address}: {source}")]
    Unresolved { address: String, source: io::Error },
    #[error("KVFERRY_NET_DEVICES={devices}: no such device, or it has no address; there are {there}")]
    Devices { devices: String, there: String },
    #[error("cannot listen on {address}{}: {source}", range.map(|(a, b)| format!(" with a port of {a}-{b}")).unwrap_or_default())]
    Listen { address: IpAddr, range: Option<(u16, u16)>, source: io::Error },
    #[error("the network devices cannot be listed: {0}")]
    List(io::Error),
}

/// Listens where the settings say: on the address that they name, on a device's, or on that of the default route; without any,
/// on loopback. Never on the wildcard.
pub(crate) fn choose(settings: &Settings) -> Result<(OwnedFd, SocketAddr), AddressError> {
    let address = match &settings.address {
        Some(address) => resolve(address)?,
        None if !settings.net_devices.is_empty() => device(&settings.net_devices)?,
        None => default_route().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    };
    let ports = settings.port_range.map_or(0..=0, |(first, last)| first..=last);
    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for port in ports {
        match kvferry_sys::listen_tcp((address, port).into()) {
            Ok(listener) => {
                let bound = kvferry_sys::local_address(&listener);
                let bound = bound.map_err(|source| AddressError::Listen { address, range: None, source })?;
                return Ok((listener, bound));
            }
            Err(error) => refused = error,
        }
    }
    Err(AddressError::Listen { address, range: settings.port_range, source: refused })
}

fn resolve(address: &str) -> Result<IpAddr, AddressError> {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse() {
        return Ok(ip);
    }
    let unresolved = |source| AddressError::Unresolved { address: address.into(), source };
    let mut found = (address, 0).to_socket_addrs().map_err(unresolved)?;
    let first = found.next().ok_or_else(|| unresolved(io::ErrorKind::NotFound.into()))?;
    Ok(first.ip())
}

fn device(devices: &[String]) -> Result<IpAddr, AddressError> {
    let interfaces = if_addrs::get_if_addrs().map_err(AddressError::List)?;
    let usable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    for device in devices {
        let of = interfaces.iter().filter(|i| i.name == *device).map(if_addrs::Interface::ip);
        // IPv4 first, as most fabrics are numbered so.
        let mut of: Vec<IpAddr> = of.filter(usable).collect();
        of.sort_by_key(IpAddr::is_ipv6);
        if let Some(ip) = of.first() {
            return Ok(*ip);
        }
    }
    let mut there: Vec<String> = interfaces.into_iter().map(|i| i.name).collect();
    there.sort_unstable();
    there.dedup();
    Err(AddressError::Devices { devices: devices.join(","), there: there.join(", ") })
}

fn default_route() -> Option<IpAddr> {
    let source = |to: &SocketAddr| kvferry_sys::source_address(*to).ok().map(|a| a.ip());
    ELSEWHERE.iter().find_map(source).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests;
