//! The headers of `/v1` that mean something to Handoff itself.

/// The role that a caller narrows itself to: one word of the roles it has anyway.
pub const ROLE: &str = "x-handoff-role";
/// The node on whose behalf a caller in the role `node` speaks.
pub const NODE: &str = "x-handoff-node";
/// The media type of every problem (RFC 9457, section 3).
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
