//! Real sandboxes, made as root and as a plain user, and what holds in them.

mod bare;
mod control;
mod isolation;
mod lease;
mod limits;
mod probe;
mod start;
mod teardown;
mod world;
