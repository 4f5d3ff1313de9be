//! Two hosts on one: network namespaces with a cable between them. Takes root, and `ip` of iproute2.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    process::Command,
};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Two network namespaces that know each other over a pair of virtual Ethernet devices, and nobody else.
///
/// They have no names: whatever ends the test, the kernel takes them and their devices away with the last process in them.
#[derive(Debug)]
pub struct Hosts {
    spaces: [File; 2],
}

/// The addresses of the two hosts.
pub const ADDRESSES: [&str; 2] = ["10.83.0.1", "10.83.0.2"];

/// The same, of IPv6.
pub const ADDRESSES_V6: [&str; 2] = ["fd83::1", "fd83::2"];

/// The device of each.
pub const DEVICE: &str = "veth0";

impl Hosts {
    /// Sets them up, with packets of at most `mtu` bytes.
    ///
    /// # Errors
    /// The machine does not allow it, or a tool is missing: why.
    pub fn new(mtu: u32) -> Result<Self, String> {
        let space =
            || unshared().map_err(|e| format!("a network namespace cannot be made: {e}{}", remedy(&e)));
        let hosts = Self { spaces: [space()?, space()?] };
        let there = format!("/proc/{}/fd/{}", std::process::id(), hosts.spaces[1].as_raw_fd());
        hosts.ip(0, &format!("link add {DEVICE} type veth peer name {DEVICE} netns {there}"))?;
        for host in 0..2 {
            hosts.ip(host, "link set lo up")?;
            hosts.ip(host, &format!("addr add {}/24 dev {DEVICE}", ADDRESSES[host]))?;
            hosts.ip(host, &format!("link set {DEVICE} mtu {mtu} up"))?;
            // Without IPv6 in the kernel, what needs it finds no address.
            let _ = hosts.ip(host, &format!("-6 addr add {}/64 dev {DEVICE} nodad", ADDRESSES_V6[host]));
        }
        Ok(hosts)
    }

    /// Runs `what` on this thread as if it were on a host; threads and processes that it starts stay there.
    ///
    /// # Panics
    /// The thread cannot go there, or not come back.
    pub fn on<T>(&self, host: usize, what: impl FnOnce() -> T) -> T {
        let home = File::open("/proc/thread-self/ns/net").expect("a network namespace");
        enter(self.spaces[host].as_fd()).expect("a way into a namespace of our own");
        let result = what();
        enter(home.as_fd()).expect("a way back");
        result
    }

    /// Runs `ip` on a host.
    ///
    /// # Errors
    /// It is missing, or what it says.
    pub fn ip(&self, host: usize, arguments: &str) -> Result<(), String> {
        self.tool(host, "ip", arguments)
    }

    /// Runs `tc` on a host.
    ///
    /// # Errors
    /// It is missing, or what it says.
    pub fn tc(&self, host: usize, arguments: &str) -> Result<(), String> {
        self.tool(host, "tc", arguments)
    }

    /// Loses packets on their way to a host: one in so many, at random.
    ///
    /// # Errors
    /// The kernel lacks what that takes.
    pub fn lose(&self, host: usize, one_in: u32) -> Result<(), String> {
        // Load a random number; whatever lies below the share is shot, by the number of that verdict.
        let (random, share) = (0xffff_f000_u32 + 56, u32::MAX / one_in);
        let program = format!("4,32 0 0 {random},53 0 1 {share},6 0 0 0,6 0 0 2");
        self.tc(host, &format!("qdisc add dev {DEVICE} ingress"))?;
        let filter = ["filter", "add", "dev", DEVICE, "ingress", "protocol", "all", "bpf", "da", "bytecode"];
        self.run(host, "tc", filter.into_iter().chain([program.as_str()]))
    }

    /// How many TCP segments a host has sent again.
    ///
    /// # Panics
    /// The kernel does not say.
    pub fn retransmitted(&self, host: usize) -> u64 {
        let counters = self.on(host, || std::fs::read_to_string("/proc/thread-self/net/snmp"));
        let counters = counters.expect("counters of the network");
        let mut lines = counters.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let mut pairs = names.split(' ').zip(values.split(' '));
        let value = pairs.find(|(name, _)| *name == "RetransSegs").and_then(|(_, value)| value.parse().ok());
        value.expect("a count of segments sent again")
    }

    /// Pulls out the cable, or puts it in.
    ///
    /// # Panics
    /// It worked before and does not now.
    pub fn cable(&self, plugged: bool) {
        // At the far end: the near one keeps its routes, and its packets are lost.
        let state = if plugged { "up" } else { "down" };
        self.ip(1, &format!("link set {DEVICE} {state}")).expect("a device of our own");
    }

    /// Runs a program with arguments that hold no blanks.
    fn tool(&self, host: usize, program: &str, arguments: &str) -> Result<(), String> {
        self.run(host, program, arguments.split(' '))
    }

    fn run<'a>(
        &self,
        host: usize,
        program: &str,
        arguments: impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let mut command = Command::new(program);
        let output = self.on(host, || command.args(arguments).output());
        let output = output.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => format!("the program `{program}` is missing: install iproute2"),
            _ => format!("{program}: {e}"),
        })?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// A new network namespace; the calling thread stays where it is.
fn unshared() -> io::Result<File> {
    let thread = std::thread::spawn(|| {
        #[expect(
            deprecated,
            reason = "what it is deprecated for, shared descriptors, is not asked for here"
        )]
        rustix::thread::unshare(UnshareFlags::NEWNET)?;
        File::open("/proc/thread-self/ns/net")
    });
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

fn enter(space: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(space, Some(LinkNameSpaceType::Network))?)
}

/// What helps against that error.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; that takes root, or CAP_SYS_ADMIN and CAP_NET_ADMIN",
        io::ErrorKind::InvalidInput => "; this kernel has none",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
