//! What a process gives up for good before it runs anything of the payload.

pub(crate) mod landlock;
pub(crate) mod privileges;
pub(crate) mod seccomp;
