//! The control plane over its real socket: the whole path, and everything that is refused on it.

mod access;
mod approvals;
mod bad_input;
mod blobs;
mod faulty;
mod lifecycle;
mod node_wire;
mod raw;
mod reaper;
mod tokens;
mod waiting;
mod world;
