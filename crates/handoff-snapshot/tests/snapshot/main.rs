//! What a snapshot promises, on real directories and a real blob store.

mod capture;
mod exactness;
mod formats;
mod hostile;
mod restore;
mod world;
