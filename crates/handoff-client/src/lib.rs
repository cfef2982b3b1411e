//! The control plane's API as a client: the only way in for CLI, nodes and agents.
