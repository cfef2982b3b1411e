//! The gateway as its neighbours meet it: over real sockets, with a real upstream, a real journal and a clock
//! that is moved by hand.

mod budget;
mod compute;
mod control;
mod credentials;
mod doors;
mod failures;
mod meter;
mod restart;
mod scripted;
mod streams;
mod take_up;
mod upstream;
mod world;
