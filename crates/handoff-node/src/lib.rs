//! The node: reconciles destinations towards what the store says.
