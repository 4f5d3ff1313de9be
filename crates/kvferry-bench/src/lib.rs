//! Measures kvferry beside the raw loop of the same mechanism.
