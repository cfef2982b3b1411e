//! The product end to end: real processes, real sandboxes, real kills. The only stand-in is the scripted model,
//! which speaks the real wire format and says what it is.

mod demo;
mod environment;
mod kills;
mod large;
mod processes;
mod refused;
mod words;
mod world;
