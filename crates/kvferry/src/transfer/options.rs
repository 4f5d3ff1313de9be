use crate::queue::CompletionQueue;

/// What a transfer does beside moving bytes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransferOptions {
    pub(crate) notification: Option<Vec<u8>>,
    pub(crate) queue: Option<CompletionQueue>,
    pub(crate) no_merge: bool,
}

impl TransferOptions {
    /// Sends `payload` to the peer once the data of an attempt is visible.
    pub fn notify(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.notification = Some(payload.into());
        self
    }

    /// Puts an [`Event::Completed`](crate::Event::Completed) into `queue` when an attempt has ended.
    pub fn queue(mut self, queue: &CompletionQueue) -> Self {
        self.queue = Some(queue.clone());
        self
    }

    /// Copies each block by itself, without merging neighbours.
    pub fn without_merging(mut self) -> Self {
        self.no_merge = true;
        self
    }
}
