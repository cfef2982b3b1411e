//! Sandbox drivers and the init that keeps the lease inside them.
