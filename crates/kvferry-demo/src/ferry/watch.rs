//! The thread that waits for what the agent has to tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use kvferry::{Agent, CompletionQueue, Event};

use super::{Fault, Happening};
use crate::control::Report;
use crate::stamp::Stamp;
use crate::worker::{Input, Voice};

/// Longest time until the thread sees that it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// A running watch; ends when dropped.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Passes on what comes through `queue`.
    pub(super) fn start(
        agent: Agent,
        queue: CompletionQueue,
        inputs: Sender<Input>,
        voice: Voice,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(event) = queue.wait(LOOK) {
                    tell(&agent, event, &inputs, &voice);
                }
            }
        };
        let thread = Some(std::thread::Builder::new().name("watch".into()).spawn(watch)?);
        Ok(Self { stop, thread })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Time is taken here, as the worker may be deep in its model.
fn tell(agent: &Agent, event: Event, inputs: &Sender<Input>, voice: &Voice) {
    let at = Stamp::now();
    let send = |happening| {
        // The worker has ended: nobody wants to know.
        let _ = inputs.send(Input::Happening(happening));
    };
    let lose = |code: &str, cause: String| {
        // A parent that is gone takes this process with it.
        let _ = voice.say(&Report::Lost { code: code.into(), cause: cause.clone(), at });
        send(Happening::Lost(Fault { code: code.into(), message: cause }));
    };
    match event {
        Event::Completed { transfer, status } => send(Happening::Ended { transfer, status, at }),
        Event::Notified { .. } => {
            for notification in agent.notifications() {
                send(Happening::Notice(notification.payload));
            }
        }
        Event::PeerLost { peer, cause, .. } => lose("peer.lost", format!("peer {peer:?} was lost: {cause}")),
        Event::PeerRestarted { peer, .. } => {
            lose("peer.restarted", format!("another incarnation took the name of peer {peer:?}"));
        }
        _ => {}
    }
}
