//! The product end to end: real processes, real sandboxes, real kills. The only stand-in is the scripted model,
//! which speaks the real wire format and says what it is.

mod demo;
mod environment;
mod hops;
mod idle;
mod kills;
mod large;
mod policy;
mod processes;
mod refused;
mod told;
mod words;
mod world;
