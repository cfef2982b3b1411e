//! The control plane over its real socket: the whole path, and everything that is refused on it.

mod lifecycle;
mod world;
