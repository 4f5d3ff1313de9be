//! A stretch of network between an agent and its peer that holds bytes back and breaks connections.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use kvferry_proto::{Blob, Endpoint};
use rustix::net::sockopt::set_socket_linger;

use crate::harness::{Request, Worker};

/// How often a forwarding thread looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(5);

/// Stands between an agent and whoever was introduced to it by [`Proxy::introduce`].
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    far: u16,
    state: Arc<State>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing goes through in either direction.
    held: AtomicBool,
    /// What comes is taken and thrown away.
    swallows: AtomicBool,
    /// New connections wait.
    shut: AtomicBool,
    over: AtomicBool,
    /// Bytes that have come from the near side.
    sent: AtomicU64,
    routes: Mutex<Vec<Arc<Route>>>,
}

/// A connection and its counterpart behind the proxy.
#[derive(Debug)]
struct Route {
    near: TcpStream,
    far: TcpStream,
    /// Nothing goes through.
    held: AtomicBool,
    /// Both sockets go as soon as nobody reads from them.
    cut: AtomicBool,
    /// One direction has ended.
    halved: AtomicBool,
}

impl Proxy {
    /// Stands before an agent that listens on IPv4 loopback.
    ///
    /// # Panics
    /// It does not listen there.
    pub fn before(worker: &Worker) -> Self {
        let blob = Blob::decode(&from_hex(&worker.metadata())).unwrap();
        let far = blob.endpoints.iter().find_map(|endpoint| match endpoint {
            Endpoint::Tcp { port, .. } => Some(*port),
            _ => None,
        });
        let far = far.expect("an agent that listens");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State::default());
        let theirs = state.clone();
        let listener = Some(std::thread::spawn(move || accept(&listener, far, &theirs)));
        Self { port, far, state, listener }
    }

    /// Lets `agent` know `worker` by the way through here, and connects it.
    ///
    /// # Panics
    /// That fails, or `worker` is not the one behind the proxy.
    #[track_caller]
    pub fn introduce(&self, agent: &Worker, worker: &Worker) {
        let mut blob = Blob::decode(&from_hex(&worker.metadata())).unwrap();
        // There is no other way: hosts that are far apart have none.
        blob.endpoints.retain(|endpoint| matches!(endpoint, Endpoint::Tcp { .. }));
        for endpoint in &mut blob.endpoints {
            if let Endpoint::Tcp { port, .. } = endpoint {
                assert_eq!(*port, self.far, "another agent");
                *port = self.port;
            }
        }
        let metadata = blob.encode().unwrap().iter().map(|b| format!("{b:02x}")).collect();
        agent.ask::<String>(&Request::Load { metadata }).unwrap_or_else(|e| panic!("{e:?}"));
        agent.connect(worker.name()).unwrap_or_else(|e| panic!("{e:?}"));
    }

    /// How many connections came and were not broken from here.
    pub fn routes(&self) -> usize {
        self.state.routes.lock().unwrap().len()
    }

    /// How many bytes the near side has sent.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(SeqCst)
    }

    /// Holds everything back, or lets it go on.
    pub fn hold(&self, held: bool) {
        self.state.held.store(held, SeqCst);
    }

    /// Takes everything that comes and throws it away. There is no way back for the connections of that time: reset them.
    pub fn swallow(&self, swallows: bool) {
        self.state.swallows.store(swallows, SeqCst);
    }

    /// Holds back the control connection only, or lets it go on with the others.
    ///
    /// # Panics
    /// There is no connection.
    pub fn hold_control(&self, held: bool) {
        let routes = self.state.routes.lock().unwrap();
        routes.first().expect("a connection").held.store(held, SeqCst);
    }

    /// Lets new connections wait, or not.
    pub fn shut(&self, shut: bool) {
        self.state.shut.store(shut, SeqCst);
    }

    /// Resets all connections, on both sides.
    pub fn reset(&self) {
        self.state.routes.lock().unwrap().drain(..).for_each(|route| route.cut.store(true, SeqCst));
    }

    /// Resets the newest connection, which is a data stream.
    ///
    /// # Panics
    /// There is no connection.
    pub fn reset_one(&self) {
        let newest = self.state.routes.lock().unwrap().pop().expect("a connection");
        newest.cut.store(true, SeqCst);
    }

    /// Closes all connections on both sides, in order.
    pub fn finish(&self) {
        for route in self.state.routes.lock().unwrap().drain(..) {
            let _ = (route.near.shutdown(Shutdown::Both), route.far.shutdown(Shutdown::Both));
        }
    }

    /// Closes all connections on the near side only; what is held is still to come to the far one.
    pub fn finish_near(&self) {
        for route in self.state.routes.lock().unwrap().iter() {
            let _ = route.near.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        self.reset();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn accept(listener: &TcpListener, far: u16, state: &Arc<State>) {
    while !state.over.load(SeqCst) {
        if state.shut.load(SeqCst) {
            std::thread::sleep(TICK);
            continue;
        }
        let Ok((near, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, far)) else { continue };
        for socket in [&near, &far] {
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(TICK)).unwrap();
            socket.set_write_timeout(Some(TICK)).unwrap();
            socket.set_nodelay(true).unwrap();
            // A socket that is just dropped says so by a reset.
            set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
        }
        let [held, cut, halved] = [(); 3].map(|()| AtomicBool::new(false));
        let route = Arc::new(Route { near, far, held, cut, halved });
        state.routes.lock().unwrap().push(route.clone());
        for up in [true, false] {
            let (route, state) = (route.clone(), state.clone());
            std::thread::spawn(move || {
                forward(&route, &state, up);
                // Whoever ends second takes the connection off the list.
                if route.halved.swap(true, SeqCst) {
                    state.routes.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &route));
                }
            });
        }
    }
}

fn forward(route: &Route, state: &State, up: bool) {
    let (mut from, mut to) = if up { (&route.near, &route.far) } else { (&route.far, &route.near) };
    let mut buffer = vec![0; 1 << 20];
    let is_held = || state.held.load(SeqCst) || route.held.load(SeqCst);
    let is_cut = || route.cut.load(SeqCst) || state.over.load(SeqCst);
    while !is_cut() {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if up {
            state.sent.fetch_add(count as u64, SeqCst);
        }
        if state.swallows.load(SeqCst) {
            continue;
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() && !is_cut() {
            if is_held() {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            match to.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
        }
    }
    // An end is news as well, and waits or is lost like all others.
    while (is_held() || state.swallows.load(SeqCst)) && !is_cut() {
        std::thread::sleep(Duration::from_millis(1));
    }
    if !is_cut() {
        let _ = to.shutdown(Shutdown::Write);
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
