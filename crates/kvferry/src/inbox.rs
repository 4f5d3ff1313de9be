use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use kvferry_proto::{Identity, Incarnation, notification_cost};

/// What a peer has told this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification {
    /// Its name.
    pub from: String,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What it wrote.
    pub payload: Vec<u8>,
}

/// Notifications that the application has not taken yet. Their senders' credit bounds them.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(Arc<Identity>, Vec<u8>)>,
    senders: HashMap<Arc<Identity>, usize>,
}

impl Inbox {
    /// Takes one in; true if it is the only one of this sender.
    pub(crate) fn push(&self, from: Identity, payload: Vec<u8>) -> bool {
        let mut state = crate::lock(&self.state);
        let known = state.senders.get_key_value(&from).map(|(k, _)| k.clone());
        let from = known.unwrap_or_else(|| Arc::new(from));
        let waiting = state.senders.entry(from.clone()).or_default();
        *waiting += 1;
        let first = *waiting == 1;
        state.queue.push_back((from, payload));
        first
    }

    /// Takes all out, with what each sender's were worth.
    pub(crate) fn drain(&self) -> (Vec<Notification>, HashMap<Arc<Identity>, u64>) {
        let queue = {
            let mut state = crate::lock(&self.state);
            state.senders.clear();
            std::mem::take(&mut state.queue)
        };
        let mut worth: HashMap<Arc<Identity>, u64> = HashMap::new();
        let mut notifications = Vec::with_capacity(queue.len());
        for (from, payload) in queue {
            *worth.entry(from.clone()).or_default() += notification_cost(payload.len());
            notifications.push(Notification {
                from: from.name.clone(),
                incarnation: from.incarnation,
                payload,
            });
        }
        (notifications, worth)
    }
}
