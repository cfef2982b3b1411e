//! The agent as a whole: real loops, real tools and real connections against the scripted model.

mod cases;
mod control;
mod killed;
mod large;
mod playing;
mod stopping;
mod world;
