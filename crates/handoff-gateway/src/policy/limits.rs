//! The `[limits]` table: sizes, times and counts that hold at every door.

use std::time::Duration;

use serde::Deserialize;

/// Sizes, times and counts. Every one has a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of a request.
    pub body_bytes: usize,
    /// Bytes of all requests of one destination together; whoever comes when they are taken waits.
    pub bodies_bytes: usize,
    /// Bytes of an answer that is not streamed, and of one event of a stream.
    pub answer_bytes: usize,
    /// Output tokens of a call that names no limit.
    pub default_max_tokens: u64,
    /// A call is not lowered below this many output tokens.
    pub floor_max_tokens: u64,
    /// Calls of one destination at a time.
    pub calls: usize,
    /// Abandoned calls of one destination that are read to their end at a time.
    pub drains: usize,
    /// Milliseconds until an upstream must have accepted the connection. Less than the third of a lease that
    /// lies between the moment an agent is frozen and the moment somebody else may run: a call that was let
    /// out just before the one has left before the other.
    pub connect_ms: u64,
    /// Milliseconds until the head of its answer must have come.
    pub first_byte_ms: u64,
    /// Milliseconds between two pieces of its answer.
    pub idle_ms: u64,
    /// Milliseconds of a whole call.
    pub call_ms: u64,
    /// Milliseconds that an abandoned call may go on.
    pub drain_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            bodies_bytes: 64 << 20,
            answer_bytes: 16 << 20,
            default_max_tokens: 4096,
            floor_max_tokens: 256,
            calls: 64,
            drains: 16,
            connect_ms: 5_000,
            first_byte_ms: 600_000,
            idle_ms: 120_000,
            call_ms: 1_200_000,
            drain_ms: 120_000,
        }
    }
}

impl Limits {
    /// [`Limits::connect_ms`] as a duration.
    pub fn connect(&self) -> Duration {
        Duration::from_millis(self.connect_ms)
    }

    /// [`Limits::first_byte_ms`] as a duration.
    pub fn first_byte(&self) -> Duration {
        Duration::from_millis(self.first_byte_ms)
    }

    /// [`Limits::idle_ms`] as a duration.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// [`Limits::call_ms`] as a duration.
    pub fn call(&self) -> Duration {
        Duration::from_millis(self.call_ms)
    }

    /// [`Limits::drain_ms`] as a duration.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}
