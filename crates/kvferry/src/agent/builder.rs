use std::{
    fmt, io,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
};

use kvferry_proto::{Endpoint, Host, Identity, Incarnation, MAX_AGENT_NAME, Secret, is_agent_name};
use kvferry_sys::{Facts, ForkGuard};

use super::{
    Agent,
    shared::{Inner, Parts, Shared},
};
use crate::{
    control::{Control, Listener, Mailbox},
    error::BuildError,
    hardware,
    registry::Registry,
    settings::Settings,
    transport::{
        Transport,
        joint::Joint,
        same_host::{CopyPool, SameHost},
        tcp::{AddressError, TcpTransport, choose_address},
    },
    watch::Watch,
};

/// Builds an [`Agent`].
#[must_use]
pub struct AgentBuilder {
    name: String,
    settings: Option<Settings>,
    transport: Option<Arc<dyn Transport>>,
    wrap: Option<Wrap>,
}

/// Makes a transport of another.
type Wrap = Box<dyn FnOnce(Arc<dyn Transport>) -> Arc<dyn Transport> + Send>;

impl AgentBuilder {
    pub(super) fn new(name: String) -> Self {
        Self { name, settings: None, transport: None, wrap: None }
    }

    /// Uses these settings instead of those of the environment.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Moves memory by this transport instead of the built-in ones. Both ends of a link must agree on it.
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Puts `wrap` around the transport that the agent would use, to add behaviour to it.
    pub fn wrap_transport(
        mut self,
        wrap: impl FnOnce(Arc<dyn Transport>) -> Arc<dyn Transport> + Send + 'static,
    ) -> Self {
        self.wrap = Some(Box::new(wrap));
        self
    }

    /// Builds the agent: from now on peers can connect to it.
    ///
    /// # Errors
    /// The name or a setting is not allowed, or the system denies a socket, a descriptor or a thread.
    pub fn build(self) -> Result<Agent, BuildError> {
        if !is_agent_name(&self.name) {
            return Err(BuildError::Name { length: self.name.len(), most: MAX_AGENT_NAME });
        }
        let settings = match self.settings {
            Some(settings) => settings,
            None => Settings::from_env()?,
        };
        settings.check()?;
        let settings = Arc::new(settings);
        let needs = |what| move |source: io::Error| BuildError::Resources { what, source };

        let mut random = [0; 16 + 32 + 16];
        getrandom::fill(&mut random).map_err(|e| needs("random numbers")(io::Error::other(e)))?;
        let (incarnation, rest) = random.split_at(16);
        let (secret, socket) = rest.split_at(32);
        let identity = Identity { name: self.name, incarnation: Incarnation(array(incarnation)) };
        let host = host().map_err(needs("facts about this host"))?;
        let own_transport = self.transport.is_some();
        let mut sockets = Sockets::open(&settings, socket).map_err(needs("a socket"))?;
        let mut address = None;
        if !own_transport && settings.refusal("tcp", "stream").is_none() {
            let bound = sockets.open_tcp(&settings);
            address = Some(bound.map_err(|e| needs("a TCP port")(io::Error::other(e)))?);
        }

        let idle_hardware = hardware::unused(Path::new("/"));
        for why_not in &idle_hardware {
            tracing::warn!(target: "kvferry::path", "{why_not}");
        }

        let registry = Arc::new(Registry::default());
        let watch = Watch::new();
        let attend = watch.clone();
        let pool = CopyPool::new(settings.threads, Box::new(move || attend.attend()))
            .map_err(needs("a copy thread"))?;
        let transport =
            self.transport.unwrap_or_else(|| Arc::new(SameHost::new(pool.clone(), registry.clone())));
        let transport = match self.wrap {
            Some(wrap) => wrap(transport),
            None => transport,
        };
        let tcp = (!own_transport).then(|| TcpTransport::new(registry.clone(), pool.board()));
        let transport = match &tcp {
            Some(tcp) => Arc::new(Joint::new(transport, tcp.clone(), address)),
            None => transport,
        };
        let (mailbox, letters) = Mailbox::new().map_err(needs("an event descriptor"))?;
        watch.start(mailbox.clone(), pool.clone()).map_err(needs("a watch thread"))?;
        static NUMBERS: AtomicUsize = AtomicUsize::new(1);
        let shared = Arc::new(Shared::new(Parts {
            identity,
            number: NUMBERS.fetch_add(1, Relaxed),
            settings,
            secret: Secret(array(secret)),
            host,
            endpoints: sockets.endpoints,
            idle_hardware,
            registry,
            transport,
            tcp,
            board: pool.board(),
            mailbox,
            fork: ForkGuard::new().map_err(needs("a page"))?,
        }));

        // The control thread takes its robust list itself, so it must say how that went.
        let (ready, built) = mpsc::channel();
        let (theirs, watched, listeners) = (shared.clone(), watch.clone(), sockets.listeners);
        let path = sockets.path;
        let control = kvferry_sys::spawn_quiet("kvferry-control", move || {
            match Control::new(theirs, watched, letters, listeners) {
                Ok(control) => {
                    let _ = ready.send(Ok(()));
                    control.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
            drop(path);
        })
        .map_err(needs("a control thread"))?;
        let inner = Inner { shared, control: Some(control), watch, pool };
        match built.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(needs("what the control thread works with")(error)),
            Err(_) => return Err(needs("a control thread")(io::Error::other("it ended at once"))),
        }
        let agent = Agent { inner: Arc::new(inner) };
        tracing::info!(target: "kvferry::control", agent = agent.name(), incarnation = %agent.incarnation(), "{}", agent.settings());
        Ok(agent)
    }
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Where the agent listens.
struct Sockets {
    endpoints: Vec<Endpoint>,
    listeners: Vec<Listener>,
    path: Option<SocketFile>,
}

/// Removes the file of a socket when the agent ends.
struct SocketFile(PathBuf);

impl Sockets {
    fn open(settings: &Settings, random: &[u8]) -> io::Result<Self> {
        let hex: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let name = format!("kvferry-{hex}").into_bytes();
        let mut sockets = Self {
            listeners: vec![Listener { fd: kvferry_sys::listen_abstract(&name)?, tcp: false }],
            endpoints: vec![Endpoint::AbstractUnix(name)],
            path: None,
        };
        if let Some(dir) = &settings.socket_dir {
            let path = dir.join(format!("kvferry-{hex}.sock"));
            let listener = kvferry_sys::listen_path(&path).map_err(|e| {
                io::Error::new(e.kind(), format!("KVFERRY_SOCKET_DIR: {}: {e}", path.display()))
            })?;
            sockets.listeners.push(Listener { fd: listener, tcp: false });
            sockets.endpoints.push(Endpoint::PathUnix(path.as_os_str().as_bytes().to_vec()));
            sockets.path = Some(SocketFile(path));
        }
        Ok(sockets)
    }

    /// The port for peers on other hosts; last, since what is nearer is better.
    fn open_tcp(&mut self, settings: &Settings) -> Result<SocketAddr, AddressError> {
        let (fd, bound) = choose_address(settings)?;
        self.listeners.push(Listener { fd, tcp: true });
        self.endpoints.push(Endpoint::Tcp { addr: bound.ip().to_string(), port: bound.port() });
        Ok(bound)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn host() -> io::Result<Host> {
    let facts = Facts::gather()?;
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
    let mut boot_id = [0; 16];
    for (byte, pair) in boot_id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(Host {
        boot_id,
        pid_namespace: facts.pid_ns,
        net_namespace: facts.net_ns,
        user_namespace: facts.user_ns,
        uid: facts.euid,
    })
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
