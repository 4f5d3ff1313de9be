//! What a run found, for machines.

use serde::Serialize;

/// The one JSON object of a run; what was not measured is null.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) tokens_equal: Option<bool>,
    pub(crate) logits_equal: Option<bool>,
    pub(crate) pages_equal: Option<bool>,
    /// Of all requests together.
    pub(crate) prompt_tokens: usize,
    /// Bytes of KV that moved.
    pub(crate) kv_bytes: Option<u64>,
    /// Blocks that moved, a page of one K or V pool each.
    pub(crate) blocks: Option<u64>,
    pub(crate) path: Option<String>,
    pub(crate) mechanism: Option<String>,
    /// How the two processes reach each other, each way.
    pub(crate) links: Vec<Link>,
    /// Time in which at least one transfer was on its way.
    pub(crate) transfer_ms: Option<f64>,
    /// How much of that prefill spent computing.
    pub(crate) hidden_ms: Option<f64>,
    /// `kv_bytes` over `transfer_ms`.
    pub(crate) gbps: Option<f64>,
    /// From the order to the first token, split; the mean over the requests.
    pub(crate) ttft_ms: Option<f64>,
    /// `smollm2` or `random`.
    pub(crate) weights: &'static str,
    /// From the order to the first token, one process alone; the mean over the requests.
    pub(crate) ttft_alone_ms: Option<f64>,
    pub(crate) requests: usize,
    /// Tokens of all answers.
    pub(crate) answer_tokens: Option<usize>,
    /// Pages of all requests, each counted once for all layers.
    pub(crate) pages: usize,
    pub(crate) page_size: usize,
    pub(crate) transfers: Option<u64>,
    /// Blocks after neighbours were merged.
    pub(crate) merged_blocks: Option<u64>,
    /// Time in the copying calls.
    pub(crate) copy_ms: Option<f64>,
    /// Tokens a second of decode, over all requests.
    pub(crate) decode_tokens_per_s: Option<f64>,
    /// The first bits of the hash over all logits of the first request, split.
    pub(crate) logits_hash: Option<String>,
    /// How a killed side was noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kill: Option<KillOutcome>,
}

/// How one process reaches the other.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Link {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) path: String,
    pub(crate) mechanism: String,
    /// Where the other was told to listen; none if the settings or the engine chose.
    pub(crate) address: Option<String>,
}

/// How the surviving side took the other's death.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct KillOutcome {
    /// Who was killed.
    pub(crate) killed: String,
    /// Who told.
    pub(crate) survivor: String,
    /// Code of the error that ended the survivor's requests.
    pub(crate) code: Option<String>,
    /// Why the survivor took the other for lost.
    pub(crate) cause: Option<String>,
    /// From the kill to the survivor's event.
    pub(crate) noticed_ms: Option<f64>,
    /// What the engine promises on one host.
    pub(crate) bound_ms: f64,
    /// What this run let pass, on a machine where all cores are busy.
    pub(crate) allowed_ms: f64,
    /// Whether the survivor told in time and lived on.
    pub(crate) ok: bool,
}
