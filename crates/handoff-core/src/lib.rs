//! The state machine: decides, and does nothing else.
