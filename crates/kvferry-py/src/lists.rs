use pyo3::prelude::*;

/// Blocks that were checked once and are bound to the regions that they lie in. `Agent.prepare_local` and
/// `Agent.prepare_remote` make them.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct PreparedList {
    pub(crate) list: kvferry::PreparedList,
}

#[pymethods]
impl PreparedList {
    /// Number of blocks, rows of grids expanded.
    fn __len__(&self) -> usize {
        usize::try_from(self.list.len()).unwrap_or(usize::MAX)
    }

    // A list of nothing is a list.
    fn __bool__(&self) -> bool {
        true
    }

    /// Bytes of all blocks together.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.list.bytes()
    }

    /// The peer whose memory it names; None for a list of our own memory.
    #[getter]
    fn peer(&self) -> Option<&str> {
        self.list.peer()
    }

    fn __repr__(&self) -> String {
        let whose = self.list.peer().map_or_else(|| "local".to_owned(), |peer| format!("of {peer:?}"));
        format!("<kvferry.PreparedList {whose}, {} blocks, {} bytes>", self.list.len(), self.list.bytes())
    }
}
